"""The output head, made to see only the rows that need logits.

The head is the widest product of a model, and most rows of a prompt need none of it. Knows where mlx-lm's models keep
their head: a layer named `lm_head`, or the embedding used the other way round.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

Select = Callable[[mx.array], mx.array]


@dataclass
class Selection:
    """What is put before the head in one forward. `hidden` is what it was to see; None if it escaped the hooks."""

    select: Select
    hidden: mx.array | None = None

    def __call__(self, hidden: mx.array) -> mx.array:
        self.hidden = hidden
        return self.select(hidden)

    def of_logits(self, logits: mx.array) -> mx.array:
        """The logits of the selected rows: they are already, unless the model's head escaped the hooks."""
        return logits if self.hidden is not None else self.select(logits)


class OutputHead:
    """The head of one model, behind hooks that all `OutputHead`s of the model share."""

    def __init__(self, model: nn.Module) -> None:
        self._hooks: list[_Hook] = []
        for name, module in model.named_modules():
            if name.rpartition(".")[2] == "lm_head":
                self._hooks.append(_hooked(module, "__call__"))
            elif isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
                self._hooks.append(_hooked(module, "as_linear"))

    @contextmanager
    def selecting(self, select: Select) -> Iterator[Selection]:
        """Within, the head sees `select(hidden)` instead of the hidden states."""
        selection = Selection(select)
        for hook in self._hooks:
            hook.selection = selection
        try:
            yield selection
        finally:
            for hook in self._hooks:
                hook.selection = None


class _Hook:
    """Stands before a product, and lets everything through while there is nothing to select."""

    def __init__(self) -> None:
        self.selection: Selection | None = None

    def __call__(self, hidden: mx.array) -> mx.array:
        return hidden if self.selection is None else self.selection(hidden)


def _hooked(module: nn.Module, method: str) -> _Hook:
    """The hook before the product that is this module's `method`, put there if there is none yet."""
    # A subclass made for the occasion keeps the module's place, parameters and type as mlx-lm and others see them.
    kind = type(module)
    present = getattr(kind, "output_hook", None)
    if isinstance(present, _Hook):
        return present
    hook = _Hook()
    product = getattr(kind, method)
    hooked = {method: lambda module, hidden: product(module, hook(hidden)), "output_hook": hook}
    module.__class__ = type(kind.__name__, (kind,), hooked)
    return hook
