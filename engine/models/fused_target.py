"""A target that runs as one native call. Knows mlx-lm's models as little as the call does."""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.models.row_target import RowTarget, wanted_rows
from mtplx.engine.models.target import Rows
from mtplx.engine.rows import RowBatch
from mtplx.engine.stacked_cache import StackedCache
from mtplx.engine.types import HostStates, Logits
from mtplx.kernels.decoder import DecoderRows, NativeDecoder


class FusedTarget(RowTarget):
    """An accelerated mlx-lm model of the Llama shape. Raises OtherShapeError for others, NotByRowsError as ever.

    `row_type` is what new caches keep keys and values as, float32 or float16.
    """

    def __init__(self, model: nn.Module, layer_caches: Sequence[Any], row_type: mx.Dtype = mx.float32) -> None:
        super().__init__(model, layer_caches)
        self._decoder = NativeDecoder(model)
        self.row_type = row_type

    def new_cache(self) -> StackedCache:
        return StackedCache(self._decoder.row_like.astype(self.row_type))

    def _run(self, batch: Sequence[Rows], *, keeps_hidden: bool) -> tuple[Logits, HostStates | None]:
        row_batch = RowBatch([(cast(StackedCache, rows.cache), rows.tokens) for rows in batch])
        segments = row_batch.segments
        decoded = self._decoder(
            row_batch.tokens,
            [DecoderRows(segment.position, segment.start, segment.stop) for segment in segments],
            wanted_rows(row_batch, batch),
            [segment.cache.take(segment.stop - segment.start) for segment in segments],
            wants_hidden=keeps_hidden,
        )
        for segment, buffer in zip(segments, decoded.buffers, strict=True):
            segment.cache.buffer = buffer
        return decoded.logits, decoded.hidden
