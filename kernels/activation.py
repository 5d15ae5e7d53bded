"""Activations, alone or gating a second array.

The functions without a prefix are native where that is possible, and else the references, which define them: MLX's own.
Natively arithmetic is float32 whatever the arrays are. Knows no layer.
"""

from collections.abc import Callable
from typing import Literal

import mlx.core as mx
import mlx.nn as nn

from mtplx.kernels.native_module import is_available, native

Activation = Literal["silu", "gelu", "gelu_tanh"]

_REFERENCES: dict[Activation, Callable[[mx.array], mx.array]] = {
    "silu": nn.silu,
    "gelu": nn.gelu,
    "gelu_tanh": nn.gelu_approx,
}


def activate(activation: Activation, x: mx.array) -> mx.array:
    """The activation of each value of x [...]."""
    if not is_available():
        return reference_activate(activation, x)
    return native.activate(activation, x.astype(mx.float32)).astype(x.dtype)


def reference_activate(activation: Activation, x: mx.array) -> mx.array:
    return _REFERENCES[activation](x)


def gated(activation: Activation, gate: mx.array, up: mx.array) -> mx.array:
    """activation(gate [..., N]) · up [..., N], as in SwiGLU and GeGLU (Shazeer, 2002.05202).

    Halves of one array do, and are not copied.
    """
    if not is_available():
        return reference_gated(activation, gate, up)
    y = native.activate(activation, gate.astype(mx.float32), up.astype(mx.float32))
    return y.astype(mx.result_type(gate, up))


def reference_gated(activation: Activation, gate: mx.array, up: mx.array) -> mx.array:
    return reference_activate(activation, gate) * up
