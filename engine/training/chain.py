"""A block run over whole texts as it will run when it drafts: each step fed with what the one before came to.

As EAGLE-3's training-time test (2503.01840). From every pair of a text a chain starts. The first step sees the target's
true hidden states, a later one the block's own; it attends to the first step's keys up to where its chain started, and
beyond to the keys of its chain alone. Knows mlx-lm's conventions for caches; knows no loss.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.models.mtp import MtpBlock
from mtplx.engine.rows import LayerView, RowMask
from mtplx.kernels.feed_forward import trained_feed_forward
from mtplx.kernels.training import causal_attention, dense


class ChainView(LayerView):
    """The keys and values [B, H, T, d] of the steps so far, in the guise of an mlx-lm cache."""

    def __init__(self) -> None:
        self._steps: list[tuple[mx.array, mx.array]] = []

    @property
    def offset(self) -> int:
        """Of the first pair in the step that comes."""
        return len(self._steps)

    def make_mask(self, num_rows: int, return_array: bool = False, window_size: int | None = None) -> RowMask:
        return RowMask(window_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self._steps.append((keys, values))
        return keys, values

    def attend(
        self, queries: mx.array, mask: RowMask | None, *, scale: float, sinks: mx.array | None = None
    ) -> mx.array:
        """Raises InvalidRequestError for attention with sinks."""
        if sinks is not None:
            raise InvalidRequestError(
                "this model attends with sinks, which a head cannot learn to; serve it without one"
            )
        [(keys, values), *chained] = self._steps
        return causal_attention(queries, keys, values, scale=scale, chained=tuple(chained))


def chained_states(block: MtpBlock, hidden: mx.array, embeddings: Sequence[mx.array]) -> list[mx.array]:
    """What the block comes to at each step [B, T, D], from the target's hidden states and each step's embeddings
    [B, T, D]. Windows are left to the caller: T is within them."""
    view: Any = ChainView()
    states = []
    for embedding in embeddings:
        hidden = block(hidden, embedding.astype(hidden.dtype), view)
        states.append(hidden)
    return states


def with_dense_products(block: MtpBlock) -> MtpBlock:
    """The same block, whose products and gates are quick for many rows and have gradients, wherever it runs."""
    whole: nn.Module = block
    for module in whole.modules():
        if type(module) is nn.Linear:
            module.__class__ = _Dense
    gates = [(name, gate) for name, module in whole.named_modules() if (gate := trained_feed_forward(module))]
    whole.update_modules(tree_unflatten(gates))
    return block


class _Dense(nn.Linear):
    def __call__(self, x: mx.array) -> mx.array:
        return dense(x, self.weight, self.get("bias"))
