"""Products in which each row chooses its weights: the reference's values, and rows whose bits are their own."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels.dense import DTYPES, dense_linear, tile_dense
from mtplx.kernels.gather import (
    gathered_linear,
    reference_gathered_dense_linear,
    reference_gathered_quantized_linear,
    tile_dense_experts,
    tile_experts,
)
from mtplx.kernels.linear import BITS, GROUP_SIZES, quantized_linear, tile
from mtplx.kernels.native_module import native
from tests.kernels.availability import needs_native
from tests.kernels.rows import THREADS, bits, random, strided_views, threads

pytestmark = needs_native

TOLERANCE = 3e-6  # of the largest value, or of what such a sum often is: products are summed in another order
NUM_EXPERTS = 5
SHAPES = [  # of x before K, and of the indices
    ((1, 1), (1,)),
    ((7, 1), (7,)),
    ((3, 1, 1), (3, 2)),  # as mlx-lm's layers have them: the same inputs for two experts
    ((2, 5, 1, 1), (2, 5, 3)),
    ((2, 5, 3, 1), (2, 5, 3)),
    ((40, 1), (40,)),
    ((4, 3), (4,)),  # several rows for one choice
    ((3,), (2, 4)),
]


def chosen(shape: tuple[int, ...]) -> mx.array:
    return mx.array(np.random.default_rng(1).integers(NUM_EXPERTS, size=shape).astype(np.uint32))


def assert_close(given: mx.array, expected: mx.array, num_inputs: int) -> None:
    assert given.shape == expected.shape
    assert given.dtype == mx.float32
    size = mx.abs(expected).max().item() + num_inputs**0.5
    assert mx.abs(given - expected).max().item() <= TOLERANCE * size


Product = Callable[[mx.array, mx.array], mx.array]
FORMS = (*DTYPES, *BITS)


def product(form: mx.Dtype | int) -> Product:
    """With 128 inputs and 75 outputs: of weights of a type, or of so many bits."""
    weight = random(NUM_EXPERTS, 75, 128)
    if isinstance(form, int):
        tiles = tile_experts(*mx.quantize(weight, bits=form, group_size=32), bits=form, group_size=32)
        return lambda x, indices: gathered_linear(x, indices, tiles, 75)
    values = tile_dense_experts(weight.astype(form))
    return lambda x, indices: gathered_linear(x, indices, values, 75)


@pytest.mark.parametrize("num_outputs", [1, 50, 64])
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("num_bits", BITS)
def test_quantized_ones_agree_with_the_reference(num_bits: int, group_size: int, num_outputs: int) -> None:
    form = {"bits": num_bits, "group_size": group_size}
    weights = mx.quantize(random(NUM_EXPERTS, num_outputs, 256), **form)
    tiles = tile_experts(*weights, **form)
    for shape, choices in SHAPES:
        x, indices = random(*shape, 256), chosen(choices)
        expected = reference_gathered_quantized_linear(x, indices, *weights, **form)
        assert_close(gathered_linear(x, indices, tiles, num_outputs), expected, 256)


@pytest.mark.parametrize("num_inputs", [1, 70, 256])
@pytest.mark.parametrize("num_outputs", [1, 50, 64])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dense_ones_agree_with_the_reference(dtype: mx.Dtype, num_outputs: int, num_inputs: int) -> None:
    weight = random(NUM_EXPERTS, num_outputs, num_inputs).astype(dtype)
    tiles = tile_dense_experts(weight)
    for shape, choices in SHAPES:
        x, indices = random(*shape, num_inputs), chosen(choices)
        expected = reference_gathered_dense_linear(x, indices, weight)
        assert_close(gathered_linear(x, indices, tiles, num_outputs), expected, num_inputs)


def test_an_expert_gives_the_bits_of_a_plain_product() -> None:
    weight, x = random(NUM_EXPERTS, 50, 64), random(9, 64)
    form = {"bits": 4, "group_size": 32}
    plain, several = mx.quantize(weight[3], **form), mx.quantize(weight, **form)
    third = mx.full((9,), 3)
    given = gathered_linear(x[:, None], third, tile_dense_experts(weight), 50)[:, 0]
    np.testing.assert_array_equal(bits(given), bits(dense_linear(x, tile_dense(weight[3]))))
    given = gathered_linear(x[:, None], third, tile_experts(*several, **form), 50)[:, 0]
    np.testing.assert_array_equal(bits(given), bits(quantized_linear(x, tile(*plain, **form))))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_rows_are_exact_whatever_the_others_choose(form: mx.Dtype | int) -> None:
    run, x, indices = product(form), random(1024, 1, 128), chosen((1024,))
    with threads(1):
        alone = np.stack([bits(run(x[i : i + 1], indices[i : i + 1]))[0] for i in range(1024)])
    for num_threads in THREADS:
        for count in (1, 2, 3, 5, 17, 64, 255, 1024):
            with threads(num_threads):
                together = bits(run(x[:count], indices[:count]))
            np.testing.assert_array_equal(together, alone[:count], err_msg=f"{count} rows, {num_threads} threads")
    order = mx.argsort(indices)
    np.testing.assert_array_equal(bits(run(x[order], indices[order])), alone[np.array(order)], err_msg="sorted")


def test_many_threads_share_few_outputs() -> None:
    run, x, indices = product(4), random(6, 1, 128), mx.array([0, 0, 0, 0, 4, 0])
    with threads(1):
        alone = bits(run(x, indices))
    with threads(7):
        np.testing.assert_array_equal(bits(run(x, indices)), alone)


@pytest.mark.parametrize("form", [mx.float16, 4], ids=str)
def test_inputs_and_indices_may_lie_anyhow_in_memory(form: mx.Dtype | int) -> None:
    run, x, indices = product(form), random(6, 128), chosen((6, 2))
    expected = bits(run(x[:, None, None], indices))
    for name, view in strided_views(x).items():
        np.testing.assert_array_equal(bits(run(view[:, None, None], indices)), expected, err_msg=name)
    across = mx.contiguous(indices.T).T
    np.testing.assert_array_equal(bits(run(x[:, None, None], across)), expected)
    np.testing.assert_array_equal(bits(run(x[:, None, None], indices.astype(mx.int64))), expected)


def test_it_is_lazy_and_composes() -> None:
    """In a graph, on an array used twice, with indices that are computed, and on one whose memory could be reused."""
    run, x, indices = product(mx.float32), random(4, 1, 128) * 2, chosen((4,))
    other = (indices + 1) % NUM_EXPERTS
    y = run(x + 1, other) - run(x, indices) * run(x, other)
    parts = [mx.array(bits(run(*each)).view(np.float32)) for each in ((x + 1, other), (x, indices), (x, other))]
    np.testing.assert_array_equal(bits(y), bits(parts[0] - parts[1] * parts[2]))


@pytest.mark.parametrize("form", [mx.float16, 4], ids=str)
def test_no_rows_give_no_rows(form: mx.Dtype | int) -> None:
    assert product(form)(mx.zeros((0, 1, 128)), mx.zeros((0,), dtype=mx.uint32)).shape == (0, 1, 75)
    assert product(form)(mx.zeros((3, 0, 128)), mx.zeros((3,), dtype=mx.uint32)).shape == (3, 0, 75)


def test_what_does_not_fit_is_refused_where_it_is_given() -> None:
    values = tile_dense_experts(random(NUM_EXPERTS, 32, 64)).values
    indices = chosen((2,))
    for x, choices, weights in [
        (mx.zeros((2, 1, 65)), indices, values),
        (mx.zeros((64,)), indices, values),
        (mx.zeros((2, 1, 64)), indices.astype(mx.float32), values),
        (mx.zeros((2, 1, 64)), indices, values.astype(mx.int32)),
        (mx.zeros((2, 1, 64)), indices, values[1:]),
    ]:
        with pytest.raises(ValueError, match="must be"):
            native.gathered_dense_linear(x, choices, weights, num_outputs=32)
