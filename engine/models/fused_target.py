"""A target whose decoder layers run as one native call, over the same rows and caches as any that runs by rows."""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.cache import RowCache
from mtplx.engine.models.row_target import RowTarget, logit_rows
from mtplx.engine.models.target import Rows
from mtplx.engine.rows import RowBatch, Segment
from mtplx.kernels.decoder import DecoderRows, NativeDecoder


class FusedTarget(RowTarget):
    """An accelerated mlx-lm model of the Llama shape. Raises OtherShapeError for others, NotByRowsError as ever."""

    def __init__(self, model: nn.Module, layer_caches: Sequence[Any]) -> None:
        super().__init__(model, layer_caches)
        self._decoder = NativeDecoder(model)

    def _run(self, batch: Sequence[Rows]) -> mx.array:
        row_batch = RowBatch([(cast(RowCache, rows.cache), rows.tokens) for rows in batch])
        inner = self._model.model
        hidden = inner.norm(self._decode(inner.embed_tokens(row_batch.tokens[:, 0]), row_batch.segments))  # [T, D]
        indices = logit_rows(row_batch, batch)
        if 0 < indices.size < hidden.shape[0]:
            hidden = hidden[indices]
        tied = self._model.args.tie_word_embeddings
        logits: mx.array = inner.embed_tokens.as_linear(hidden) if tied else self._model.lm_head(hidden)
        return logits

    def _decode(self, hidden: mx.array, segments: Sequence[Segment]) -> mx.array:
        """The decoder layers' output [T, D]. The caches' buffers become those with the new rows in place."""
        like = self._decoder.rows_like
        buffers: list[mx.array] = []
        for segment in segments:
            for layer in segment.cache.layers:
                buffers += layer.take(segment.end, like, like)
        rows = [DecoderRows(segment.position, segment.start, segment.stop) for segment in segments]
        hidden, updated = self._decoder(hidden, rows, buffers)
        buffers.clear()
        pairs = iter(updated)
        for segment in segments:
            for layer in segment.cache.layers:
                layer.keys, layer.values = next(pairs), next(pairs)
        return hidden
