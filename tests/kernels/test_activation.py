"""Activations: equal to MLX's, each value on its own, lazy like any other operation."""

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels.activation import Activation, activate, gated, reference_activate, reference_gated
from tests.kernels.availability import needs_native
from tests.kernels.rows import assert_rows_are_exact, bits, random, strided_views

pytestmark = needs_native

every_activation = pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])


def assert_close(actual: mx.array, expected: mx.array) -> None:
    """Within float rounding of what the activation multiplies: 1 + erf and 1 + tanh lose digits in the reference."""
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=3e-6, atol=2e-6)


@every_activation
def test_activations_equal_mlx(activation: Activation) -> None:
    x = mx.linspace(-12, 12, 10001)
    assert_close(activate(activation, x), reference_activate(activation, x))


@every_activation
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100, 1536])
def test_gates_equal_mlx(activation: Activation, n: int) -> None:
    gate, up = random(5, n, scale=3), random(5, n, seed=1)
    assert_close(gated(activation, gate, up), reference_gated(activation, gate, up))


@every_activation
def test_far_from_zero_they_are_zero_and_the_value_itself(activation: Activation) -> None:
    x = mx.array([-3e38, -1e4, -200.0, 200.0, 1e4])
    np.testing.assert_array_equal(np.array(activate(activation, x)), [0, 0, 0, 200, 1e4])


@every_activation
def test_nan_stays_nan(activation: Activation) -> None:
    assert np.isnan(np.array(activate(activation, mx.array([float("nan")] * 20)))).all()


@every_activation
def test_a_row_has_the_same_bits_in_any_company(activation: Activation) -> None:
    assert_rows_are_exact(lambda x: gated(activation, x, x * x), random(1024, 49))


@every_activation
def test_a_value_has_the_same_bits_at_any_place_of_a_row(activation: Activation) -> None:
    x = random(100)
    whole = bits(activate(activation, x))
    for start in range(1, 20):
        np.testing.assert_array_equal(bits(activate(activation, x[start:])), whole[start:])


def test_halves_of_one_array_need_not_be_copied() -> None:
    both = random(6, 2, 40) + 0
    gate, up = both[:, 0], both[:, 1]
    assert_close(gated("silu", gate, up), reference_gated("silu", gate, up))
    wide = random(6, 80) + 0
    gate, up = mx.split(wide, 2, axis=-1)
    assert_close(gated("silu", gate, up), reference_gated("silu", gate, up))


def test_strides_change_no_bit() -> None:
    x = random(9, 50)
    expected = bits(activate("silu", x))
    for name, view in strided_views(x).items():
        np.testing.assert_array_equal(bits(activate("silu", view)), expected, err_msg=name)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_other_types_come_back_as_they_were(dtype: mx.Dtype) -> None:
    x = random(3, 20).astype(dtype)
    actual = gated("silu", x, x)
    assert actual.dtype == dtype
    expected = np.array(reference_gated("silu", x.astype(mx.float32), x.astype(mx.float32)))
    np.testing.assert_allclose(np.array(actual.astype(mx.float32)), expected, rtol=1e-2, atol=1e-3)


def test_inputs_that_are_read_again_keep_their_values() -> None:
    x = random(4, 40) * 1.5  # not evaluated: its memory may be taken over only if nobody else reads it
    y = gated("silu", x, x)
    z = x + activate("gelu", y) * y
    x2 = random(4, 40) * 1.5
    y2 = reference_gated("silu", x2, x2)
    assert_close(z, x2 + reference_activate("gelu", y2) * y2)


def test_empty_arrays_stay_empty() -> None:
    assert np.array(activate("silu", mx.zeros((0, 4)))).shape == (0, 4)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        gated("silu", random(2, 8), random(2, 7))
