"""A model with its products in fewer bits, sharing everything else. Knows layers; knows no particular model."""

import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from mtplx.kernels.accelerate import accelerate, is_accelerated
from mtplx.kernels.layers import NativeDense, NativeLinear

_GROUP_SIZES = (64, 32)  # for weights that come without, the cheapest that fits


def requantised(model: nn.Module, bits: int) -> nn.Module | None:
    """A twin of `model` whose products have `bits` bits where they had more; None if none had.

    It is accelerated if `model` is. Embeddings stay what they are, also as the output head, and so do the products of
    experts.
    """
    swaps = [
        (name, linear.to_quantized(group_size=group_size, bits=bits))
        for name, layer in model.named_modules()
        if held_bits(layer) > bits
        for linear in [_as_numbers(layer)]
        if (group_size := _group_size(layer, linear)) is not None
    ]
    if not swaps:
        return None
    mx.eval([layer.parameters() for _, layer in swaps])
    twin: nn.Module = _twin(model)
    twin.update_modules(tree_unflatten(swaps))
    if is_accelerated(model):
        accelerate(twin)
    return twin


def held_bits(layer: nn.Module) -> int:
    """Bits of each weight of a product; 0 for a layer that is none."""
    match layer:
        case NativeLinear():
            return layer.tiles.bits
        case nn.QuantizedLinear() if layer.mode == "affine":
            return int(layer.bits)
        case nn.Linear() | NativeDense():
            return 8 * layer.weight.dtype.size
        case _:
            return 0


def _as_numbers(layer: Any) -> nn.Linear:
    """The product as MLX's own, its weights as numbers."""
    linear = nn.Linear(1, 1, bias=False)
    match layer:
        case NativeLinear():
            linear.weight = layer.tiles.rows()
        case nn.QuantizedLinear():
            linear.weight = mx.dequantize(
                layer.weight, layer.scales, layer.biases, group_size=layer.group_size, bits=layer.bits
            )
        case _:
            linear.weight = layer.weight
    if "bias" in layer:
        linear.bias = layer.bias
    return linear


def _group_size(layer: Any, linear: nn.Linear) -> int | None:
    """Weights that share a scale: as many as do already. None if the weights cannot be quantized."""
    present = layer.tiles if isinstance(layer, NativeLinear) else layer
    if hasattr(present, "group_size"):
        return int(present.group_size)
    return next((size for size in _GROUP_SIZES if linear.weight.shape[-1] % size == 0), None)


def _twin(value: Any) -> Any:
    """Copies of all modules, holding the very arrays."""
    match value:
        case nn.Module():
            twin = copy.copy(value)
            for name, child in value.items():
                twin[name] = _twin(child)
            return twin
        case list() | tuple():
            return type(value)(_twin(child) for child in value)
        case dict():
            return {name: _twin(child) for name, child in value.items()}
        case _:
            return value
