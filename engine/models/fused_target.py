"""A target that runs as one native call, over the same rows and caches as any that runs by rows."""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.cache import RowCache
from mtplx.engine.models.row_target import RowTarget, wanted_rows
from mtplx.engine.models.target import Rows
from mtplx.engine.rows import RowBatch
from mtplx.kernels.decoder import DecoderRows, NativeDecoder


class FusedTarget(RowTarget):
    """An accelerated mlx-lm model of the Llama shape. Raises OtherShapeError for others, NotByRowsError as ever."""

    def __init__(self, model: nn.Module, layer_caches: Sequence[Any]) -> None:
        super().__init__(model, layer_caches)
        self._decoder = NativeDecoder(model)

    def _run(self, batch: Sequence[Rows]) -> mx.array:
        row_batch = RowBatch([(cast(RowCache, rows.cache), rows.tokens) for rows in batch])
        return self._decode(row_batch, wanted_rows(row_batch, batch))

    def _decode(self, batch: RowBatch, wanted: Sequence[int]) -> mx.array:
        """Logits [R, V] of the wanted rows. The caches' buffers become those with the new rows in place."""
        like = self._decoder.rows_like
        buffers: list[mx.array] = []
        for segment in batch.segments:
            for layer in segment.cache.layers:
                buffers += layer.take(segment.end, like, like)
        rows = [DecoderRows(segment.position, segment.start, segment.stop) for segment in batch.segments]
        logits, updated = self._decoder(batch.tokens[:, 0], rows, wanted, buffers)
        buffers.clear()
        pairs = iter(updated)
        for segment in batch.segments:
            for layer in segment.cache.layers:
                layer.keys, layer.values = next(pairs), next(pairs)
        return logits
