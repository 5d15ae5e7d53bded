"""Norms: equal to MLX's, each row on its own, lazy like any other operation."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels import norm
from tests.kernels.availability import needs_native
from tests.kernels.rows import assert_rows_are_exact, bits, random, strided_views

pytestmark = needs_native

EPS = 1e-5
SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 100, 576, 1000, 4096)

Norm = Callable[..., mx.array]


def native_and_reference(name: str) -> tuple[Norm, Norm]:
    return getattr(norm, name), getattr(norm, f"reference_{name}")


def affine(kind: str, n: int, given: str) -> list[mx.array | None]:
    weight, bias = 1 + random(n, seed=1, scale=0.3), random(n, seed=2)
    arrays: list[mx.array | None] = [weight if "weight" in given else None]
    return arrays if kind == "rms_norm" else [*arrays, bias if "bias" in given else None]


def assert_close(actual: mx.array, expected: mx.array) -> None:
    """Within a few roundings of float32: sums are taken in another order."""
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("given", ["nothing", "weight", "weight and bias"])
def test_norms_equal_mlx(kind: str, n: int, given: str) -> None:
    native, reference = native_and_reference(kind)
    x, parameters = random(7, n) + 0.5, affine(kind, n, given)
    assert_close(native(x, *parameters, EPS), reference(x, *parameters, EPS))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_added_residuals_are_normed_and_given_back(kind: str, n: int) -> None:
    native, reference = native_and_reference(f"add_{kind}")
    x, residual, parameters = random(7, n) + 0.5, random(7, n, seed=3), affine(kind, n, "weight and bias")
    (actual, total), (expected, expected_total) = (f(x, residual, *parameters, EPS) for f in (native, reference))
    assert_close(actual, expected)
    np.testing.assert_array_equal(bits(total), bits(expected_total))


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 40), (2, 1, 3, 17), (0, 8), (3, 0)])
def test_any_shape_will_do(kind: str, shape: tuple[int, ...]) -> None:
    native, reference = native_and_reference(kind)
    x, parameters = random(*shape), affine(kind, shape[-1], "weight and bias")
    actual = native(x, *parameters, EPS)
    assert actual.shape == shape
    if x.size:
        assert_close(actual, reference(x, *parameters, EPS))
    mx.eval(actual)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_other_types_come_back_as_mlx_gives_them(dtype: mx.Dtype) -> None:
    x, weight = random(3, 64).astype(dtype), random(64, seed=1).astype(dtype)
    actual, expected = norm.rms_norm(x, weight, EPS), norm.reference_rms_norm(x, weight, EPS)
    assert actual.dtype == expected.dtype == dtype
    np.testing.assert_allclose(
        np.array(actual.astype(mx.float32)), np.array(expected.astype(mx.float32)), rtol=2e-2, atol=1e-3
    )


@pytest.mark.parametrize("n", [17, 576])
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"])
def test_a_row_has_the_same_bits_in_any_company(kind: str, n: int) -> None:
    native, _ = native_and_reference(kind)
    parameters = affine(kind.removeprefix("add_"), n, "weight and bias")
    if kind.startswith("add_"):
        assert_rows_are_exact(lambda x: native(x, 2 * x, *parameters, EPS)[0], random(1024, n))
    else:
        assert_rows_are_exact(lambda x: native(x, *parameters, EPS), random(1024, n))


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_strides_change_no_bit(kind: str) -> None:
    native, _ = native_and_reference(kind)
    x, parameters = random(9, 50), affine(kind, 50, "weight and bias")
    expected = bits(native(x, *parameters, EPS))
    for name, view in strided_views(x).items():
        np.testing.assert_array_equal(bits(native(view, *parameters, EPS)), expected, err_msg=name)


def test_broadcast_weights_and_residuals_are_read_as_they_lie() -> None:
    x, row = random(6, 33), random(33, seed=1)
    repeated = mx.broadcast_to(row, (6, 33))
    weight = mx.broadcast_to(mx.array(2.0), (33,))
    actual, total = norm.add_rms_norm(x, repeated, weight, EPS)
    expected, expected_total = norm.reference_add_rms_norm(x, repeated, weight, EPS)
    assert_close(actual, expected)
    np.testing.assert_array_equal(bits(total), bits(expected_total))


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_inputs_that_are_read_again_keep_their_values(kind: str) -> None:
    native, reference = native_and_reference(kind)
    parameters = affine(kind, 40, "weight and bias")
    x = random(4, 40) * 1.5  # not evaluated: the norm may take over its memory only if nobody else reads it
    y = native(x, *parameters, EPS)
    again = x + y * native(y, *parameters, EPS)
    x2 = random(4, 40) * 1.5
    y2 = reference(x2, *parameters, EPS)
    assert_close(again, x2 + y2 * reference(y2, *parameters, EPS))


def test_memory_of_inputs_that_nobody_reads_again_may_be_taken_over() -> None:
    weight = mx.ones(40)
    total, y = norm.add_rms_norm(random(4, 40) * 2, random(4, 40, seed=1) * 3, weight, EPS)[::-1]
    expected_y, expected_total = norm.reference_add_rms_norm(random(4, 40) * 2, random(4, 40, seed=1) * 3, weight, EPS)
    assert_close(y * 1, expected_y)
    assert_close(total * 1, expected_total)


def test_the_residual_may_be_the_array_itself() -> None:
    x = random(4, 40) * 2
    y, total = norm.add_rms_norm(x, x, None, EPS)
    np.testing.assert_array_equal(np.array(total), 2 * np.array(x))
    assert_close(y, norm.reference_rms_norm(2 * x, None, EPS))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="shape of a row"):
        norm.rms_norm(random(2, 8), random(7), EPS)
    with pytest.raises(ValueError, match="same shape"):
        norm.add_rms_norm(random(2, 8), random(1, 8), None, EPS)
