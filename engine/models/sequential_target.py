"""A target that runs one sequence at a time through mlx-lm's own caches: recurrent, hybrid and unusual models."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mtplx.engine.models.host_memory import in_host_memory
from mtplx.engine.models.output_head import OutputHead
from mtplx.engine.models.sequential_cache import SequentialCache
from mtplx.engine.models.target import Rows
from mtplx.engine.types import HostStates, Logits


class SequentialTarget:
    """An mlx-lm model run as mlx-lm runs it. `make_layer_caches` gives fresh mlx-lm caches."""

    way: Literal["sequential"] = "sequential"

    def __init__(self, model: nn.Module, make_layer_caches: Callable[[], list[Any]]) -> None:
        self._model = model
        self._make_layer_caches = make_layer_caches
        self._head = OutputHead(model)

    def new_cache(self) -> SequentialCache:
        return SequentialCache(self._make_layer_caches())

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        return [self._forward(cast(SequentialCache, rows.cache), rows) for rows in batch]

    def _forward(self, cache: SequentialCache, rows: Rows) -> Logits:
        if cache.owed:
            self._run(cache, cache.owed, 0)
            cache.owed = []
        cache.prepare()
        logits, hidden = self._run(cache, rows.tokens, rows.num_logits)
        if cache.hidden is not None and hidden is not None:
            cache.hidden.append(cache.num_committed + cache.num_uncommitted, hidden)
        cache.extend(rows.tokens)
        return logits

    def _run(self, cache: SequentialCache, tokens: Sequence[int], num_logits: int) -> tuple[Logits, HostStates | None]:
        """Logits of the last rows, and the hidden states [T, D] of all if the cache keeps them."""

        def select(hidden: mx.array) -> mx.array:  # [1, T, D] to [1, num_logits, D]
            return hidden[:, hidden.shape[1] - num_logits :]

        with self._head.selecting(select) as selection:
            logits = self._model(mx.array(list(tokens))[None], cache=cache.layers)
        hidden = selection.hidden[0] if cache.hidden is not None and selection.hidden is not None else None
        if num_logits == 0:
            mx.eval(hidden, cache.arrays)
            return np.empty((0, 0), dtype=np.float32), None if hidden is None else in_host_memory(hidden)
        selected = selection.of_logits(logits)[0]
        mx.eval(selected, hidden, cache.arrays)
        return in_host_memory(selected), None if hidden is None else in_host_memory(hidden)
