"""Products with weights that are numbers: the reference's values, and rows whose bits are their own."""

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels.dense import DTYPES, DenseTiles, dense_linear, reference_dense_linear, tile_dense
from mtplx.kernels.native_module import native
from tests.kernels.availability import needs_native
from tests.kernels.rows import assert_rows_are_exact, bits, random, strided_views, threads

pytestmark = needs_native

TOLERANCE = 2e-6  # of the largest value: sums of some hundred products, in another order


def tiled(num_outputs: int, num_inputs: int, dtype: mx.Dtype = mx.float32) -> DenseTiles:
    return tile_dense(random(num_outputs, num_inputs).astype(dtype))


def assert_close(given: mx.array, expected: mx.array) -> None:
    assert given.shape == expected.shape
    assert given.dtype == mx.float32
    assert mx.abs(given - expected).max().item() <= TOLERANCE * mx.abs(expected).max().item()


@pytest.mark.parametrize("num_inputs", [1, 31, 32, 100, 384])
@pytest.mark.parametrize("num_outputs", [1, 16, 50, 128])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_agrees_with_the_reference(dtype: mx.Dtype, num_outputs: int, num_inputs: int) -> None:
    weight = random(num_outputs, num_inputs).astype(dtype)
    for num_rows in (1, 2, 3, 7, 8, 9, 30):
        x = random(num_rows, num_inputs, seed=num_rows)
        assert_close(dense_linear(x, tile_dense(weight)), reference_dense_linear(x, weight))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_keep_their_type_and_can_be_had_back(dtype: mx.Dtype) -> None:
    weight = random(50, 70).astype(dtype)
    tiles = tile_dense(weight)
    assert tiles.values.dtype == dtype
    assert tiles.rows().dtype == dtype
    assert mx.array_equal(tiles.rows(), weight)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_every_number_of_half_precision_is_read_exactly(dtype: mx.Dtype) -> None:
    weight = mx.arange(1 << 16, dtype=mx.uint16).view(dtype)[:, None]
    weight = mx.where(mx.isfinite(weight), weight, 0)
    assert mx.array_equal(dense_linear(mx.ones((1, 1)), tile_dense(weight))[0], weight[:, 0].astype(mx.float32))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_inputs_may_be_of_half_precision(dtype: mx.Dtype) -> None:
    weight, x = random(32, 70), random(3, 70).astype(dtype)
    assert_close(dense_linear(x, tile_dense(weight)), reference_dense_linear(x, weight))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_exact(dtype: mx.Dtype) -> None:
    weights = tiled(75, 110, dtype)
    assert_rows_are_exact(lambda x: dense_linear(x, weights), random(1024, 110))


def test_many_threads_share_few_outputs() -> None:
    weights, x = tiled(48, 640), random(5, 640)
    with threads(1):
        alone = bits(dense_linear(x, weights))
    with threads(7):
        np.testing.assert_array_equal(bits(dense_linear(x, weights)), alone)


def test_inputs_may_lie_anyhow_in_memory() -> None:
    weights, x = tiled(33, 65), random(6, 65)
    expected = bits(dense_linear(x, weights))
    for name, view in strided_views(x).items():
        np.testing.assert_array_equal(bits(dense_linear(view, weights)), expected, err_msg=name)
    np.testing.assert_array_equal(bits(dense_linear(x.reshape(2, 3, 65), weights)).reshape(6, 33), expected)


def test_it_is_lazy_and_composes() -> None:
    """In a graph, on an array used twice, and on one whose memory could be reused."""
    first, second = tiled(64, 64), tiled(64, 64, mx.float16)
    doubled = random(4, 64) * 2
    y = dense_linear(dense_linear(doubled, first) + doubled, second) + dense_linear(doubled, first)
    steps = bits(dense_linear(doubled, first)).view(np.float32)
    inner = bits(dense_linear(mx.array(steps) + doubled, second)).view(np.float32)
    np.testing.assert_array_equal(bits(y), bits(mx.array(inner) + mx.array(steps)))


def test_no_rows_give_no_rows() -> None:
    assert dense_linear(mx.zeros((0, 64)), tiled(32, 64)).shape == (0, 32)


def test_what_does_not_fit_is_refused_where_it_is_given() -> None:
    tiles = tiled(32, 64)
    for x, values, num_outputs in [
        (mx.zeros((2, 65)), tiles.values, 32),
        (mx.zeros((2, 64)), tiles.values, 33),
        (mx.zeros((2, 64)), tiles.values.astype(mx.int32), 32),
        (mx.array(0.0), tiles.values, 32),
    ]:
        with pytest.raises(ValueError, match="must be"):
            native.dense_linear(x, values, num_outputs=num_outputs)
