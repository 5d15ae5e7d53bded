"""What products with quantized weights take in: float32, or numbers rounded to 16 or 8 bits, which is quicker.

Rounded inputs have one scale for each group of weights, as in ggml's Q8_0. Where the processor adds up products of
bytes in one step, float32 ones become whole numbers of 24 bits on the way, whose sums are exact: no less accurate than
sums of float32.
Knows the choice, which is one for the whole process, and what it means; knows no layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import mlx.core as mx

from mtplx.kernels.linear import BITS, quantized_linear, reference_quantized_linear, tile
from mtplx.kernels.native_module import is_available, native

Inputs: TypeAlias = Literal["float32", "int16", "int8"]
InputsChoice: TypeAlias = Inputs | Literal["auto"]

_LARGEST = {"int16": 127 * 137, "int8": 127}  # of whole numbers, as native/rows.h has it
_TOLERANCE = 1e-4  # of the largest value, as for layers


def inputs_here(choice: InputsChoice) -> Inputs:
    """What to take in: "auto" is int16 where the processor is quicker at that, else float32."""
    if choice != "auto":
        return choice
    return "int16" if native.IS_QUICK_AT_INT16 else "float32"


def set_inputs(inputs: Inputs) -> None:
    """Choose for all native products of this process from now on."""
    native.set_input_bytes({"float32": native.FLOAT_BYTES, "int16": 2, "int8": 1}[inputs])


@contextmanager
def float_inputs() -> Iterator[None]:
    """Within, products take float32, whatever is chosen: for comparisons in which rounding would drown a difference."""
    if not is_available():
        yield
        return
    chosen = native.input_bytes()
    set_inputs("float32")
    try:
        yield
    finally:
        native.set_input_bytes(chosen)


def rounded_agree(inputs: Inputs) -> bool:
    """Whether products that round give, on this machine, what the reference gives for rounded inputs."""
    chosen = native.input_bytes()
    set_inputs(inputs)
    try:
        return all(_agrees(inputs, bits) for bits in BITS)
    finally:
        native.set_input_bytes(chosen)


def _agrees(inputs: Inputs, bits: int) -> bool:
    weight, scales, biases = mx.quantize(mx.random.normal((48, 128)), group_size=32, bits=bits)
    x = mx.random.normal((9, 128))
    given = quantized_linear(x, tile(weight, scales, biases, bits=bits, group_size=32))
    rounded = reference_rounded(x, 32, inputs)
    expected = reference_quantized_linear(rounded, weight, scales, biases, bits=bits, group_size=32)
    return bool((mx.abs(given - expected).max() <= _TOLERANCE * mx.abs(expected).max()).item())


def reference_rounded(x: mx.array, group_size: int, inputs: Inputs) -> mx.array:
    """x [..., K] as products that round see it: in a group, the nearest multiples of its largest magnitude divided by
    127 for int8, by 127 · 137 for int16."""
    if inputs == "float32":
        return x
    largest = _LARGEST[inputs]
    groups = x.astype(mx.float32).reshape(*x.shape[:-1], -1, group_size)
    limit = mx.abs(groups).max(axis=-1, keepdims=True)
    inverse = mx.where(limit > 0, largest / limit, 0.0)
    return (mx.round(groups * inverse) * (limit / largest)).reshape(x.shape)
