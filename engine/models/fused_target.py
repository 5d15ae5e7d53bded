"""A target that runs as one native call. Knows mlx-lm's models as little as the call does."""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.models.row_target import RowTarget, wanted_rows
from mtplx.engine.models.target import Rows
from mtplx.engine.rows import RowBatch
from mtplx.engine.stacked_cache import StackedCache
from mtplx.kernels.decoder import DecoderRows, NativeDecoder


class FusedTarget(RowTarget):
    """An accelerated mlx-lm model of the Llama shape. Raises OtherShapeError for others, NotByRowsError as ever."""

    def __init__(self, model: nn.Module, layer_caches: Sequence[Any]) -> None:
        super().__init__(model, layer_caches)
        self._decoder = NativeDecoder(model)

    def new_cache(self) -> StackedCache:
        return StackedCache(self._decoder.row_like)

    def _run(self, batch: Sequence[Rows]) -> mx.array:
        row_batch = RowBatch([(cast(StackedCache, rows.cache), rows.tokens) for rows in batch])
        return self._decode(row_batch, wanted_rows(row_batch, batch))

    def _decode(self, batch: RowBatch[StackedCache], wanted: Sequence[int]) -> mx.array:
        """Logits [R, V] of the wanted rows. The caches' buffers become those with the new rows in place."""
        segments = batch.segments
        buffers = [segment.cache.take(segment.stop - segment.start) for segment in segments]
        rows = [DecoderRows(segment.position, segment.start, segment.stop) for segment in segments]
        logits, updated = self._decoder(batch.tokens[:, 0], rows, wanted, buffers)
        for segment, buffer in zip(segments, updated, strict=True):
            segment.cache.buffer = buffer
        return logits
