"""The one front: swaps layers of an mlx-lm model for native ones where they match, and tells what it did."""

from collections import Counter
from dataclasses import dataclass

import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from mtplx.kernels.layers import NativeEmbedding, NativeLinear, can_be_native


@dataclass(frozen=True)
class Acceleration:
    """How many layers of each kind became native, and how many stay MLX's own."""

    native: dict[str, int]
    stock: dict[str, int]


def accelerate(model: nn.Module) -> Acceleration:
    """Swap what can be swapped, in place."""
    native: Counter[str] = Counter()
    stock: Counter[str] = Counter()
    swaps: list[tuple[str, nn.Module]] = []
    for name, layer in tree_flatten(model.leaf_modules(), is_leaf=nn.Module.is_module):
        kind = type(layer).__name__
        if can_be_native(layer):
            swap = NativeEmbedding if isinstance(layer, nn.QuantizedEmbedding) else NativeLinear
            swaps.append((name, swap(layer)))
            native[kind] += 1
        else:
            stock[kind] += 1
    model.update_modules(tree_unflatten(swaps))
    return Acceleration(dict(native), dict(stock))
