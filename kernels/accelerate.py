"""The one front: swaps layers of an mlx-lm model for native ones where they match, and tells what it did."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from mtplx.kernels.layers import NativeEmbedding, NativeLinear, NativeRMSNorm, NativeRoPE, native_layer

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-4  # of the largest value: far above float32's rounding, far below what a wrong kernel gives


@dataclass(frozen=True)
class Acceleration:
    """Layers by the name of their type: how many became native, how many stay MLX's own, and the types that failed
    their check and stay for that reason."""

    native: dict[str, int]
    stock: dict[str, int]
    failed: tuple[str, ...] = ()


def accelerate(model: nn.Module) -> Acceleration:
    """Swap what can be swapped, in place.

    The first layer of each type, and of each form of weights, is compared with the one it replaces, on random input; one
    that differs keeps its type from being swapped, which is logged.
    """
    native: Counter[str] = Counter()
    stock: Counter[str] = Counter()
    checks: dict[tuple[object, ...], bool] = {}
    swaps: list[tuple[str, nn.Module]] = []
    for name, layer in _leaves(model):
        kind = type(layer).__name__
        swap = native_layer(layer)
        if swap is not None:
            form = (kind, getattr(layer, "bits", None), getattr(layer, "group_size", None))
            if form not in checks:
                checks[form] = _agrees(layer, swap)
            if checks[form]:
                swaps.append((name, swap))
                native[kind] += 1
                continue
        stock[kind] += 1
    model.update_modules(tree_unflatten(swaps))
    failed = tuple(" ".join(str(part) for part in form if part is not None) for form, good in checks.items() if not good)
    if failed:
        logger.error("native kernels differ from MLX's own on this machine, which serve instead: %s", ", ".join(failed))
    return Acceleration(dict(native), dict(stock), failed)


def _leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    leaves: list[tuple[str, nn.Module]] = tree_flatten(model.leaf_modules(), is_leaf=nn.Module.is_module)
    return iter(leaves)


def _agrees(layer: nn.Module, swap: nn.Module) -> bool:
    """Whether the native layer gives what MLX's own does, on a few random rows."""
    match swap:
        case NativeLinear():
            x = mx.random.normal((3, swap.tiles.num_inputs))
            expected, given = layer(x), swap(x)
        case NativeEmbedding():
            x = mx.random.normal((2, swap.tiles.num_inputs))
            expected, given = layer.as_linear(x), swap.as_linear(x)
        case NativeRMSNorm():
            x = mx.random.normal((3, swap.weight.size))
            expected, given = layer(x), swap(x)
        case NativeRoPE():
            x = mx.random.normal((3, 2, 1, swap.dims))
            offset = mx.array([0, 7, 1000])
            expected, given = layer(x, offset=offset), swap(x, offset=offset)
        case _:
            raise TypeError(f"there is no check for {type(swap).__name__}")
    difference = mx.abs(expected - given).max() / mx.abs(expected).max()
    return bool((difference < _TOLERANCE).item())
