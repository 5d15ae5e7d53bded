"""The one front: swaps layers of an mlx-lm model for native ones where they match, and tells what it did."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.switch_layers import SwitchLinear

from mtplx.kernels import layers
from mtplx.kernels.feed_forward import native_feed_forward
from mtplx.kernels.inputs import float_inputs
from mtplx.kernels.layers import (
    NativeDense,
    NativeEmbedding,
    NativeLayerNorm,
    NativeLinear,
    NativeRMSNorm,
    NativeRoPE,
    NativeSwitchLinear,
    native_layer,
)
from mtplx.kernels.memory import settle
from mtplx.kernels.report import Acceleration

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-4  # of the largest value: far above float32's rounding, far below what a wrong kernel gives


def accelerate(model: nn.Module) -> Acceleration:
    """Swap what can be swapped, in place.

    The first layer of each type, and of each form of weights, is compared with the one it replaces, on random input;
    one that differs keeps its type from being swapped, which is logged.
    """
    with float_inputs():
        return _accelerate(model)


def _accelerate(model: nn.Module) -> Acceleration:
    native: Counter[str] = Counter()
    stock: Counter[str] = Counter()
    checks: dict[tuple[object, ...], bool] = {}
    swaps: list[tuple[str, nn.Module]] = []
    for name, layer in _leaves(model):
        kind = type(layer).__name__
        swap = native_layer(layer)
        if swap is not None:
            form = (kind, *_form_of_weights(layer))
            if form not in checks:
                checks[form] = _agrees(layer, swap)
            if checks[form]:
                swaps.append((name, swap))
                native[kind] += 1
                continue
        stock[kind] += 1
    model.update_modules(tree_unflatten(swaps))  # before memory is needed for settling: this frees some
    _settle([swap for _, swap in swaps])
    native += _swap_feed_forwards(model)
    failed = tuple(
        " ".join(str(part) for part in form if part is not None) for form, good in checks.items() if not good
    )
    if failed:
        logger.error("native kernels differ from MLX's own on this machine, which serve instead: %s", ", ".join(failed))
    return Acceleration(dict(native), dict(stock), failed)


def is_accelerated(model: nn.Module) -> bool:
    """Whether any of its layers is native."""
    return any(type(module).__module__ == layers.__name__ for module in model.modules())


def _settle(swaps: Sequence[nn.Module]) -> None:
    """Move the weights of native products to where they are quick to read through, in the order of the model."""
    kinds = NativeLinear | NativeEmbedding | NativeDense | NativeSwitchLinear
    products = [swap for swap in swaps if isinstance(swap, kinds)]
    if products:
        for product, tiles in zip(products, settle([product.tiles for product in products]), strict=True):
            product.tiles = tiles


def _swap_feed_forwards(model: nn.Module) -> Counter[str]:
    """Once the products in them are native; each is tried. How many, by the name of their type."""
    swaps: list[tuple[str, nn.Module]] = []
    kinds: Counter[str] = Counter()
    for name, layer in model.named_modules():
        if (swap := native_feed_forward(layer)) is not None:
            swaps.append((name, swap))
            kinds[type(layer).__name__] += 1
    model.update_modules(tree_unflatten(swaps))
    return kinds


def _leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    leaves: Any = tree_flatten(model.leaf_modules(), is_leaf=nn.Module.is_module)
    yield from leaves


def _form_of_weights(layer: nn.Module) -> tuple[object, ...]:
    """What tells which kernel their products take."""
    if isinstance(layer, nn.Linear | SwitchLinear):
        return (layer.weight.dtype,)
    return getattr(layer, "bits", None), getattr(layer, "group_size", None)


def _agrees(layer: nn.Module, swap: nn.Module) -> bool:
    """Whether the native layer gives what MLX's own does, on a few random rows."""
    match swap:
        case NativeLinear() | NativeDense():
            x = mx.random.normal((3, swap.tiles.num_inputs))
            expected, given = layer(x), swap(x)
        case NativeEmbedding():
            x = mx.random.normal((2, swap.tiles.num_inputs))
            expected, given = layer.as_linear(x), swap.as_linear(x)
        case NativeSwitchLinear():
            x = mx.random.normal((3, 1, 1, swap.tiles.num_inputs))
            indices = mx.arange(6).reshape(3, 2) % swap.num_experts
            expected, given = layer(x, indices), swap(x, indices)
        case NativeRMSNorm():
            x = mx.random.normal((3, swap.weight.size))
            expected, given = layer(x), swap(x)
        case NativeLayerNorm():
            x = mx.random.normal((3, swap.dims))
            expected, given = layer(x), swap(x)
        case NativeRoPE():
            x = mx.random.normal((3, 2, 1, swap.dims))
            offset = mx.array([0, 7, 1000])
            expected, given = layer(x, offset=offset), swap(x, offset=offset)
        case _:
            raise TypeError(f"there is no check for {type(swap).__name__}")
    return bool((mx.abs(expected - given).max() <= _TOLERANCE * mx.abs(expected).max()).item())
