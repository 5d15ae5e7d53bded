"""Gated feed-forward layers, whose activation a native kernel takes over: products stay what they are.

Knows three products by the names that mlx-lm's models give them. Knows no model, and finds out by trying which
activation a layer has.
"""

from typing import get_args

import mlx.core as mx
import mlx.nn as nn

from mtplx.kernels.activation import Activation, gated
from mtplx.kernels.layers import NativeLinear
from mtplx.kernels.native_module import is_available

_PRODUCTS = {"gate_proj", "up_proj", "down_proj"}
_TOLERANCE = 2e-5  # of a row's largest value: two forms of GELU differ by more
_SIZES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # of inputs to try: small ones tell activations apart, large ones find limits


class NativeFeedForward(nn.Module):
    """In the place of a layer that gives down(activation(gate(x)) · up(x))."""

    def __init__(self, layer: nn.Module, activation: Activation) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gate_proj, self.up_proj, self.down_proj = layer.gate_proj, layer.up_proj, layer.down_proj
        self.activation = activation

    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.down_proj(gated(self.activation, self.gate_proj(x), self.up_proj(x)))
        return y


def native_feed_forward(layer: nn.Module) -> NativeFeedForward | None:
    """The native layer to take this one's place: one that gives the same. None if there is none for it."""
    if set(layer) != _PRODUCTS or not isinstance(layer.gate_proj, NativeLinear):
        return None
    return _with_native_gate(layer, layer.gate_proj.tiles.num_inputs)


def trained_feed_forward(layer: nn.Module) -> NativeFeedForward | None:
    """The same for one that is trained, whose products are `nn.Linear`: its parameters keep their names. None too where
    there are no native kernels."""
    if set(layer) != _PRODUCTS or not isinstance(layer.gate_proj, nn.Linear) or not is_available():
        return None
    return _with_native_gate(layer, layer.gate_proj.weight.shape[1])


def _with_native_gate(layer: nn.Module, num_inputs: int) -> NativeFeedForward | None:
    x = mx.random.normal((len(_SIZES), num_inputs)) * mx.array(_SIZES)[:, None]
    try:
        expected = layer(x)
    except Exception:  # it takes something else than rows alone
        return None
    for activation in get_args(Activation):
        candidate = NativeFeedForward(layer, activation)
        difference = mx.abs(candidate(x) - expected).max(axis=-1) / mx.abs(expected).max(axis=-1)
        if bool(mx.all(difference < _TOLERANCE).item()):
            return candidate
    return None
