"""Products with quantized weights: the reference's values, and rows whose bits are their own."""

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels.linear import BITS, GROUP_SIZES, TiledWeights, quantized_linear, reference_quantized_linear, tile
from tests.kernels.availability import needs_native
from tests.kernels.rows import as_floats, assert_rows_are_exact, bits, random, strided_views, threads

pytestmark = needs_native


TOLERANCE = 5e-6  # of the largest value: sums of some hundred products, in another order


@pytest.fixture(autouse=True)
def floats() -> Iterator[None]:
    """Inputs stay floats on any machine: test_inputs.py has what else they may be."""
    with as_floats():
        yield


def quantized(num_outputs: int, num_inputs: int, num_bits: int, group_size: int) -> tuple[mx.array, mx.array, mx.array]:
    weight, scales, biases = mx.quantize(random(num_outputs, num_inputs), group_size=group_size, bits=num_bits)
    return weight, scales, biases


def tiled(num_outputs: int, num_inputs: int, num_bits: int = 4, group_size: int = 32) -> TiledWeights:
    return tile(*quantized(num_outputs, num_inputs, num_bits, group_size), bits=num_bits, group_size=group_size)


def assert_close(given: mx.array, expected: mx.array) -> None:
    assert given.shape == expected.shape
    assert mx.abs(given - expected).max().item() <= TOLERANCE * mx.abs(expected).max().item()


@pytest.mark.parametrize("num_outputs", [1, 16, 50, 128])
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("num_bits", BITS)
def test_it_agrees_with_the_reference(num_bits: int, group_size: int, num_outputs: int) -> None:
    weights = quantized(num_outputs, 384, num_bits, group_size)
    form = {"bits": num_bits, "group_size": group_size}
    for num_rows in (1, 2, 3, 7, 8, 9, 30):
        x = random(num_rows, 384, seed=num_rows)
        assert_close(quantized_linear(x, tile(*weights, **form)), reference_quantized_linear(x, *weights, **form))


@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("num_bits", BITS)
def test_the_weights_can_be_had_back_as_numbers(num_bits: int, group_size: int) -> None:
    weights = quantized(50, 256, num_bits, group_size)
    form = {"bits": num_bits, "group_size": group_size}
    assert mx.array_equal(tile(*weights, **form).rows(), mx.dequantize(*weights, **form))


@pytest.mark.parametrize("kind", [mx.float16, mx.bfloat16])
def test_scales_and_inputs_may_be_of_half_precision(kind: mx.Dtype) -> None:
    weight, scales, biases = quantized(32, 64, 4, 32)
    half = (weight, scales.astype(kind), biases.astype(kind))
    x = random(3, 64).astype(kind)
    whole = (weight, half[1].astype(mx.float32), half[2].astype(mx.float32))
    expected = reference_quantized_linear(x.astype(mx.float32), *whole, bits=4, group_size=32)
    assert_close(quantized_linear(x, tile(*half, bits=4, group_size=32)), expected)


@pytest.mark.parametrize("num_bits", BITS)
def test_rows_are_exact(num_bits: int) -> None:
    weights = tiled(80, 128, num_bits)
    assert_rows_are_exact(lambda x: quantized_linear(x, weights), random(1024, 128))


def test_many_threads_share_few_outputs() -> None:
    weights, x = tiled(48, 640), random(5, 640)
    with threads(1):
        alone = bits(quantized_linear(x, weights))
    with threads(7):
        np.testing.assert_array_equal(bits(quantized_linear(x, weights)), alone)


def test_inputs_may_lie_anyhow_in_memory() -> None:
    weights, x = tiled(32, 64), random(6, 64)
    expected = bits(quantized_linear(x, weights))
    for name, view in strided_views(x).items():
        np.testing.assert_array_equal(bits(quantized_linear(view, weights)), expected, err_msg=name)
    np.testing.assert_array_equal(bits(quantized_linear(x.reshape(2, 3, 64), weights)).reshape(6, 32), expected)


def test_it_is_lazy_and_composes() -> None:
    """In a graph, on an array used twice, and on one whose memory could be reused."""
    first, second = tiled(64, 64), tiled(64, 64, 8)
    x = random(4, 64)
    doubled = x * 2
    y = quantized_linear(quantized_linear(doubled, first) + doubled, second) + quantized_linear(doubled, first)
    steps = bits(quantized_linear(doubled, first))
    inner = bits(quantized_linear(mx.array(steps.view(np.float32)) + doubled, second))
    np.testing.assert_array_equal(bits(y), bits(mx.array(inner.view(np.float32)) + mx.array(steps.view(np.float32))))


def test_no_rows_give_no_rows() -> None:
    assert quantized_linear(mx.zeros((0, 64)), tiled(32, 64)).shape == (0, 32)
