"""What products with quantized weights take in: float32, or int8, which is quicker and rounds.

Rounded inputs have one scale for each group of weights, as in ggml's Q8_0. Knows the choice, which is one for the whole
process, and what it means; knows no layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import mlx.core as mx

from mtplx.kernels.linear import BITS, quantized_linear, reference_quantized_linear, tile
from mtplx.kernels.native_module import is_available, native

Inputs: TypeAlias = Literal["float32", "int8"]

_LARGEST = 127
_TOLERANCE = 1e-4  # of the largest value, as for layers


def set_inputs(inputs: Inputs) -> None:
    """Choose for all native products of this process from now on."""
    native.set_input_bytes(1 if inputs == "int8" else 0)


@contextmanager
def float_inputs() -> Iterator[None]:
    """Within, products take float32, whatever is chosen: for comparisons in which rounding would drown a difference."""
    chosen = native.input_bytes() if is_available() else 0
    if chosen:
        native.set_input_bytes(0)
    try:
        yield
    finally:
        if chosen:
            native.set_input_bytes(chosen)


def int8_agrees() -> bool:
    """Whether products with int8 inputs give, on this machine, what the reference gives for the rounded ones."""
    chosen = native.input_bytes()
    set_inputs("int8")
    try:
        return all(_agrees(bits) for bits in BITS)
    finally:
        native.set_input_bytes(chosen)


def _agrees(bits: int) -> bool:
    weight, scales, biases = mx.quantize(mx.random.normal((48, 128)), group_size=32, bits=bits)
    x = mx.random.normal((9, 128))
    given = quantized_linear(x, tile(weight, scales, biases, bits=bits, group_size=32))
    rounded = reference_rounded(x, 32)
    expected = reference_quantized_linear(rounded, weight, scales, biases, bits=bits, group_size=32)
    return bool((mx.abs(given - expected).max() <= _TOLERANCE * mx.abs(expected).max()).item())


def reference_rounded(x: mx.array, group_size: int) -> mx.array:
    """x [..., K] as int8 products see it: in a group, the nearest multiples of its largest magnitude / 127."""
    groups = x.astype(mx.float32).reshape(*x.shape[:-1], -1, group_size)
    limit = mx.abs(groups).max(axis=-1, keepdims=True)
    inverse = mx.where(limit > 0, _LARGEST / limit, 0.0)
    return (mx.round(groups * inverse) * (limit / _LARGEST)).reshape(x.shape)
