"""The output head, made to see only the rows that need logits.

The head is the widest product of a model, and most rows of a prompt need none of it. Knows where mlx-lm's models keep
their head: a layer named `lm_head`, or the embedding used the other way round.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mlx.core as mx
import mlx.nn as nn

Select = Callable[[mx.array], mx.array]


class OutputHead:
    """A hook before the head of one model."""

    def __init__(self, model: nn.Module) -> None:
        self._select: Select | None = None
        self._selected = False
        for name, module in model.named_modules():
            if name.rpartition(".")[2] == "lm_head":
                self._hook(module, "__call__")
            elif isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
                self._hook(module, "as_linear")

    @contextmanager
    def selecting(self, select: Select) -> Iterator[None]:
        """Within, the head sees `select(hidden)` instead of the hidden states."""
        self._select, self._selected = select, False
        try:
            yield
        finally:
            self._select = None

    def select_after(self, logits: mx.array, select: Select) -> mx.array:
        """The logits of the selected rows: they are already, unless the model's head escaped the hook."""
        return logits if self._selected else select(logits)

    def _before(self, hidden: mx.array) -> mx.array:
        if self._select is None:
            return hidden
        self._selected = True
        return self._select(hidden)

    def _hook(self, module: nn.Module, method: str) -> None:
        # A subclass made for the occasion keeps the module's place, parameters and type as mlx-lm and others see them.
        kind = type(module)
        product = getattr(kind, method)
        hooked = {method: lambda module, hidden: product(module, self._before(hidden))}
        module.__class__ = type(kind.__name__, (kind,), hooked)
