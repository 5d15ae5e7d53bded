"""A target that runs by rows: one forward for the rows of all sequences. Knows which mlx-lm models can be asked to."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import KVCache, RotatingKVCache

from mtplx.engine.cache import RowCache
from mtplx.engine.models.host_memory import in_host_memory
from mtplx.engine.models.output_head import OutputHead
from mtplx.engine.models.target import Rows
from mtplx.engine.rows import Cache, RowBatch, install_row_attention, row_views
from mtplx.engine.stacked_cache import StackedCache
from mtplx.engine.types import HostStates, Logits
from mtplx.kernels.accelerate import is_accelerated


class NotByRowsError(Exception):
    """Why a model cannot run by rows, in words for a person."""


class RowTarget:
    """An mlx-lm model run on flattened rows. `layer_caches` is the list its `make_cache` gives.

    Attention is native if layers of the model are and `allow_native`. Raises NotByRowsError when a layer keeps anything
    but keys and values.
    """

    way: Literal["rows"] = "rows"

    def __init__(self, model: nn.Module, layer_caches: Sequence[Any], *, allow_native: bool = True) -> None:
        self._model = model
        self._windows = [_window(cache) for cache in layer_caches]
        self.is_native = allow_native and is_accelerated(model)
        self._head = OutputHead(model)
        install_row_attention(model)

    def new_cache(self) -> RowCache | StackedCache:
        return RowCache(self._windows)

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        caches = [cast(RowCache | StackedCache, rows.cache) for rows in batch]
        logits, hidden = self._run(batch, keeps_hidden=any(cache.hidden is not None for cache in caches))
        pieces = [None] * len(batch) if hidden is None else _split_hidden(hidden, batch)
        for cache, rows, piece in zip(caches, batch, pieces, strict=True):
            if cache.hidden is not None and piece is not None:
                cache.hidden.append(cache.end, piece)
            cache.extend(len(rows.tokens))
        ends = list(accumulate(rows.num_logits for rows in batch))
        return [logits[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _run(self, batch: Sequence[Rows], *, keeps_hidden: bool) -> tuple[Logits, HostStates | None]:
        """The forward: logits [R, V] of the rows that want them and, if asked for and if the model's head is found, the
        hidden states [T, D] of all."""
        row_batch = RowBatch([(cast(RowCache, rows.cache), rows.tokens) for rows in batch])
        views = row_views(row_batch, len(self._windows), native=self.is_native)
        indices = mx.array(wanted_rows(row_batch, batch), dtype=mx.int32)

        def select(rows: mx.array) -> mx.array:  # [T, 1, D] to [R, 1, D]
            return rows if indices.size in (0, rows.shape[0]) else rows[indices]

        with self._head.selecting(select) as selection:
            logits = self._model(mx.array(row_batch.tokens)[:, None], cache=views)
        if any(view.num_writes != 1 or view.num_reads != 1 for view in views):
            raise NotByRowsError("not every layer attends to its own cache in the usual way")
        if not all(view.mask_fits for view in views):
            raise NotByRowsError("a layer masks another window than its cache keeps")
        hidden = selection.hidden[:, 0] if keeps_hidden and selection.hidden is not None else None
        wanted = selection.of_logits(logits)[:, 0] if indices.size else None
        mx.eval(wanted, hidden, [cast(RowCache, rows.cache).arrays for rows in batch])
        states = None if hidden is None else in_host_memory(hidden)
        return np.empty((0, 0), dtype=np.float32) if wanted is None else in_host_memory(wanted), states


def _split_hidden(hidden: HostStates, batch: Sequence[Rows]) -> list[HostStates | None]:
    """Of hidden states [T, D] those [n, D] of each sequence that keeps them."""
    if len(batch) == 1:
        return [hidden]
    ends = np.cumsum([len(rows.tokens) for rows in batch]).tolist()
    # Copies: a few rows that are kept must not keep the memory of a long prompt that was forwarded beside them.
    return [
        None if rows.cache.hidden is None else hidden[end - len(rows.tokens) : end].copy()
        for rows, end in zip(batch, ends, strict=True)
    ]


def wanted_rows(row_batch: RowBatch[Cache], batch: Sequence[Rows]) -> list[int]:
    """Which rows of the batch want logits."""
    return [
        row
        for segment, rows in zip(row_batch.segments, batch, strict=True)
        for row in range(segment.stop - rows.num_logits, segment.stop)
    ]


def _window(cache: Any) -> int | None:
    """The window of the layer that keeps this mlx-lm cache; None for full attention."""
    if type(cache) is KVCache:
        return None
    if type(cache) is RotatingKVCache and cache.keep == 0:
        return int(cache.max_size)
    raise NotByRowsError(f"a layer keeps a {type(cache).__name__}, not plain keys and values")
