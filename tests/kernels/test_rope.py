"""Rotary embedding: equal to MLX's up to far positions, each row on its own, lazy like any other operation."""

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels.rope import inverse_frequencies, reference_rope, rope
from tests.kernels.availability import needs_native
from tests.kernels.rows import bits, random, threads

pytestmark = needs_native

both_layouts = pytest.mark.parametrize("traditional", [False, True])


def assert_close(actual: mx.array, expected: mx.array) -> None:
    """Within float rounding of sine and cosine, whose angles are the same to the last bit."""
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=1e-5, atol=2e-6)


@both_layouts
@pytest.mark.parametrize(
    ("head_size", "dims"), [(64, 64), (128, 128), (80, 32), (64, 20), (6, 2), (40, 36), (256, 256)]
)
def test_it_equals_mlx(traditional: bool, head_size: int, dims: int) -> None:
    x = random(5, 3, 1, head_size)
    offset = mx.array([0, 1, 77, 4095, 12345])
    arguments = {"traditional": traditional, "base": 10000.0, "scale": 1.0, "offset": offset}
    assert_close(rope(x, dims, **arguments), reference_rope(x, dims, **arguments))


@both_layouts
@pytest.mark.parametrize("base", [10000.0, 100000.0, 500000.0, 1000000.0, 12345.678])
def test_it_equals_mlx_up_to_far_positions(traditional: bool, base: float) -> None:
    positions = np.random.default_rng(0).integers(0, 100_001, size=200)
    positions[:2] = 0, 100_000
    x = random(200, 2, 1, 64)
    arguments = {"traditional": traditional, "base": base, "scale": 1.0, "offset": mx.array(positions)}
    assert_close(rope(x, 64, **arguments), reference_rope(x, 64, **arguments))


@both_layouts
def test_it_equals_mlx_for_many_tokens_of_a_sequence(traditional: bool) -> None:
    x = random(2, 3, 19, 32)
    for offset in (7, mx.array(7), mx.array([3, 1000])):
        arguments = {"traditional": traditional, "base": 10000.0, "scale": 0.25, "offset": offset}
        assert_close(rope(x, 32, **arguments), reference_rope(x, 32, **arguments))


def test_it_equals_mlx_for_other_numbers_of_axes() -> None:
    for shape in ((2, 5, 16), (2, 3, 4, 5, 16)):
        arguments = {"traditional": False, "base": 10000.0, "scale": 1.0, "offset": mx.array([3, 1000])}
        assert_close(rope(random(*shape), 16, **arguments), reference_rope(random(*shape), 16, **arguments))


@both_layouts
def test_it_takes_frequencies(traditional: bool) -> None:
    freqs = mx.array(np.random.default_rng(0).uniform(1, 1e5, size=16).astype(np.float32))
    offset = mx.array([5, 99_999])
    arguments = {"traditional": traditional, "base": None, "scale": 1.0, "offset": offset, "freqs": freqs}
    x = random(2, 3, 1, 40)
    assert_close(rope(x, 32, **arguments), reference_rope(x, 32, **arguments))


def test_one_of_base_and_frequencies_must_be_given() -> None:
    with pytest.raises(ValueError, match="one of"):
        inverse_frequencies(8, None)
    with pytest.raises(ValueError, match="one of"):
        inverse_frequencies(8, 10000.0, mx.ones(4))


@both_layouts
def test_a_row_has_the_same_bits_in_any_company(traditional: bool) -> None:
    x = random(1024, 3, 1, 40)
    positions = mx.array(np.random.default_rng(1).integers(0, 100_000, size=1024).astype(np.int32))

    def rotated(rows: slice) -> np.ndarray:
        return bits(rope(x[rows], 36, traditional=traditional, base=10000.0, scale=1.0, offset=positions[rows]))

    with threads(1):
        alone = np.concatenate([rotated(slice(i, i + 1)) for i in range(1024)])
    for num_threads in (1, 2):
        for count in (1, 2, 3, 17, 255, 1024):
            with threads(num_threads):
                np.testing.assert_array_equal(rotated(slice(count)), alone[:count])


def test_a_token_has_the_same_bits_in_a_sequence_and_alone() -> None:
    x = random(1, 2, 50, 64)
    whole = bits(rope(x, 64, traditional=False, base=10000.0, scale=1.0, offset=1000))
    for i in (0, 1, 49):
        alone = rope(x[:, :, i : i + 1], 64, traditional=False, base=10000.0, scale=1.0, offset=1000 + i)
        np.testing.assert_array_equal(bits(alone), whole[:, :, i : i + 1])


@both_layouts
def test_strides_change_no_bit(traditional: bool) -> None:
    x = random(4, 3, 5, 32)
    arguments = {"traditional": traditional, "base": 10000.0, "scale": 1.0, "offset": mx.array([0, 10, 200, 3000])}
    expected = bits(rope(x, 32, **arguments))
    views = {
        "heads beside each other": mx.contiguous(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
        "transposed": mx.contiguous(x.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0),
        "part of a larger array": mx.concatenate([x, x], axis=3)[..., :32],
    }
    for name, view in views.items():
        np.testing.assert_array_equal(bits(rope(view, 32, **arguments)), expected, err_msg=name)
    offsets = mx.array([0, -1, 10, -1, 200, -1, 3000, -1])[::2]
    np.testing.assert_array_equal(bits(rope(x, 32, **{**arguments, "offset": offsets})), expected)


def test_inputs_that_are_read_again_keep_their_values() -> None:
    arguments = {"traditional": False, "base": 10000.0, "scale": 1.0, "offset": 9}
    x = random(1, 2, 5, 32) * 1.5  # not evaluated: its memory may be taken over only if nobody else reads it
    y = x + rope(rope(x, 32, **arguments), 32, **arguments)
    x2 = random(1, 2, 5, 32) * 1.5
    assert_close(y, x2 + reference_rope(reference_rope(x2, 32, **arguments), 32, **arguments))


def test_memory_that_is_taken_over_is_rotated_in_place() -> None:
    arguments = {"traditional": True, "base": 10000.0, "scale": 1.0, "offset": 9}
    x = random(1, 2, 5, 40) * 1.5
    expected = reference_rope(random(1, 2, 5, 40) * 1.5, 32, **arguments)
    y = rope(x, 32, **arguments)
    del x
    assert_close(y, expected)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_other_types_come_back_as_they_were(dtype: mx.Dtype) -> None:
    arguments = {"traditional": False, "base": 10000.0, "scale": 1.0, "offset": 500}
    x = random(1, 2, 5, 32).astype(dtype)
    actual = rope(x, 32, **arguments)
    assert actual.dtype == dtype
    expected = np.array(reference_rope(x.astype(mx.float32), 32, **arguments))
    np.testing.assert_allclose(np.array(actual.astype(mx.float32)), expected, rtol=1e-2, atol=1e-2)
