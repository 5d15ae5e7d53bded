"""Operations for training: the values and gradients of MLX's own, for any shape, however gradients are asked for."""

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mtplx.kernels import training
from mtplx.kernels.activation import Activation, gated, reference_gated
from mtplx.kernels.native_module import native
from tests.kernels.availability import needs_native
from tests.kernels.rows import assert_rows_are_exact, bits, random, threads

TOLERANCE = 1e-5  # of the largest value


every_activation = pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])


def assert_close(given: mx.array, expected: mx.array, tolerance: float = TOLERANCE) -> None:
    assert given.shape == expected.shape
    assert given.dtype == expected.dtype
    greatest = mx.abs(expected).max().item() if expected.size else 0.0
    np.testing.assert_allclose(np.array(given), np.array(expected), rtol=0, atol=tolerance * greatest)


def values_and_gradients(function: Callable[..., mx.array], *arrays: mx.array) -> list[mx.array]:
    """The function's value, and by each array the gradient of its values weighed at random."""
    weights = random(*function(*arrays).shape, seed=99)
    values, gradients = mx.vjp(function, list(arrays), [weights])
    return [*values, *gradients]


def assert_same(given: Callable[..., mx.array], expected: Callable[..., mx.array], *arrays: mx.array) -> None:
    pairs = zip(values_and_gradients(given, *arrays), values_and_gradients(expected, *arrays), strict=True)
    for each, stock in pairs:
        assert_close(each, stock)


@needs_native
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (12, 16, 32), (97, 300, 33), (200, 31, 70), (13, 513, 5), (20, 400, 1600), (3, 0, 4), (0, 5, 3)],
)
def test_products_and_their_gradients_are_those_of_mlx(m: int, k: int, n: int) -> None:
    assert_same(training.matmul, mx.matmul, random(m, k), random(k, n, seed=1))


@needs_native
@pytest.mark.parametrize("batch", [(1,), (2, 3), (9,)])
def test_arrays_of_matrices_are_multiplied_one_by_one(batch: tuple[int, ...]) -> None:
    assert_same(training.matmul, mx.matmul, random(*batch, 20, 37), random(*batch, 37, 41, seed=1))


@needs_native
def test_matrices_may_lie_anyhow_in_memory() -> None:
    a, b = random(40, 6, 70), random(80, 6, 70, seed=1)
    assert_same(
        lambda a, b: training.matmul(a[::2].swapaxes(0, 1), b[:, :, :].transpose(1, 2, 0)),
        lambda a, b: a[::2].swapaxes(0, 1) @ b.transpose(1, 2, 0),
        a,
        b,
    )
    assert_same(
        lambda x, g: training.matmul(mx.broadcast_to(x[:1], (30, 40)), g),
        lambda x, g: mx.broadcast_to(x[:1], (30, 40)) @ g,
        random(2, 40),
        random(40, 50),
    )


@needs_native
def test_rows_of_products_are_exact() -> None:
    weight = random(75, 300)
    assert_rows_are_exact(lambda x: training.dense(x, weight), random(1024, 300))


@needs_native
def test_many_threads_change_no_bit() -> None:
    a, b = random(500, 600), random(600, 200)
    with threads(1):
        alone = bits(training.matmul(a, b))
    with threads(7):
        np.testing.assert_array_equal(bits(training.matmul(a, b)), alone)


@pytest.mark.parametrize("bias", [False, True])
def test_dense_is_a_linear_layer(bias: bool) -> None:
    arrays = [random(2, 7, 40), random(50, 40, seed=1), random(50, seed=2)][: 3 if bias else 2]
    assert_same(training.dense, lambda x, weight, bias=None: x @ weight.T + (0 if bias is None else bias), *arrays)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(40, 64), nn.Linear(64, 24)

    def __call__(self, x: mx.array) -> mx.array:
        middle = gated("silu", training.dense(x, self.first.weight, self.first.bias), x @ mx.ones((40, 64)))
        return training.dense(middle, self.second.weight, self.second.bias)


@pytest.mark.parametrize("way", ["plain", "checkpointed", "compiled"])
def test_they_compose_with_modules_checkpoints_and_compilation(way: str) -> None:
    layer = Layer()
    x, target = random(30, 40), mx.softmax(random(30, 24, seed=1), axis=-1)

    def plain(model: Layer) -> mx.array:
        middle = nn.silu(model.first(x)) * (x @ mx.ones((40, 64)))
        return -(target * nn.log_softmax(model.second(middle))).sum()

    def loss(model: Layer) -> mx.array:
        def forward(parameters: dict[str, object], x: mx.array) -> mx.array:
            model.update(parameters)
            return training.cross_entropy(model(x), target).sum()

        return (mx.checkpoint(forward) if way == "checkpointed" else forward)(model.trainable_parameters(), x)

    expected, gradients = nn.value_and_grad(layer, plain)(layer)
    compute = nn.value_and_grad(layer, loss)
    given, ours = (mx.compile(lambda: compute(layer)) if way == "compiled" else lambda: compute(layer))()
    assert_close(given, expected)
    for name in ("first", "second"):
        for part in ("weight", "bias"):
            assert_close(ours[name][part], gradients[name][part])


@pytest.mark.parametrize("num_chained", [0, 1, 3])
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "rows", "size"),
    [(1, 1, 1, 1, 8), (2, 6, 2, 33, 64), (1, 2, 1, 230, 40), (3, 4, 4, 97, 17)],
)
def test_attention_is_causal_and_sees_its_own_chain(
    batch: int, heads: int, kv_heads: int, rows: int, size: int, num_chained: int
) -> None:
    q = random(batch, heads, rows, size)
    others = [random(batch, kv_heads, rows, size, seed=i) for i in range(1, 3 + 2 * num_chained)]

    def attend(attention: Callable[..., mx.array], q: mx.array, k: mx.array, v: mx.array, *chain: mx.array) -> mx.array:
        return attention(q, k, v, scale=size**-0.5, chained=list(zip(chain[::2], chain[1::2], strict=True)))

    assert_same(
        lambda *arrays: attend(training.causal_attention, *arrays),
        lambda *arrays: attend(training.reference_causal_attention, *arrays),
        q,
        *others,
    )


def test_a_chain_is_what_rows_put_after_the_others_would_be() -> None:
    """The last row of a sequence with one more row, whose key is that of the chain."""
    q, k, v = random(1, 2, 10, 16), random(1, 1, 10, 16, seed=1), random(1, 1, 10, 16, seed=2)
    key, value = random(1, 1, 10, 16, seed=3), random(1, 1, 10, 16, seed=4)
    longer = mx.fast.scaled_dot_product_attention(
        q[:, :, 6:7],
        mx.concatenate([k[:, :, :7], key[:, :, 6:7]], axis=2),
        mx.concatenate([v[:, :, :7], value[:, :, 6:7]], axis=2),
        scale=0.25,
    )
    given = training.causal_attention(q, k, v, scale=0.25, chained=[(key, value)])
    assert_close(given[:, :, 6:7], longer)


def test_attention_takes_views_that_models_give_it() -> None:
    def attend(attention: Callable[..., mx.array], rows: mx.array) -> mx.array:
        q, k, v = (each.reshape(2, 20, -1, 8).swapaxes(1, 2) for each in mx.split(rows, [32, 48], axis=-1))
        return attention(q, k, v, scale=0.3).swapaxes(1, 2).reshape(2, 20, 32)

    assert_same(
        lambda rows: attend(training.causal_attention, rows),
        lambda rows: attend(training.reference_causal_attention, rows),
        random(2, 20, 64),
    )


@every_activation
@pytest.mark.parametrize("n", [1, 17, 100])
def test_gates_have_the_gradients_of_mlx(activation: Activation, n: int) -> None:
    arrays = random(6, n, scale=3), random(6, n, seed=1)
    assert_same(lambda *given: gated(activation, *given), lambda *given: reference_gated(activation, *given), *arrays)


@needs_native
@every_activation
def test_activations_alone_have_gradients_too(activation: Activation) -> None:
    x = mx.linspace(-9, 9, 1001)
    assert_same(lambda x: native.activate(activation, x), lambda x: reference_gated(activation, x, mx.array(1.0)), x)


@every_activation
def test_far_from_zero_activations_have_slope_zero_and_one(activation: Activation) -> None:
    slopes = mx.grad(lambda x: gated(activation, x, mx.ones(4)).sum())(mx.array([-1e6, -200.0, 200.0, 1e6]))
    np.testing.assert_array_equal(np.array(slopes), [0, 0, 1, 1])


@pytest.mark.parametrize("shape", [(1, 1), (3, 15), (2, 3, 100), (0, 4)])
def test_softmax_is_that_of_mlx(shape: tuple[int, ...]) -> None:
    assert_same(training.softmax, lambda x: mx.softmax(x, axis=-1), random(*shape, scale=5))


@pytest.mark.parametrize("shape", [(1, 1), (3, 15), (2, 3, 100), (40, 1000)])
@pytest.mark.parametrize("mass", [1.0, 0.6])
def test_cross_entropy_is_that_of_the_formula(shape: tuple[int, ...], mass: float) -> None:
    logits = random(*shape, scale=5)
    probabilities = mx.softmax(random(*shape, seed=1, scale=3), axis=-1) * mass
    assert_same(
        lambda logits: training.cross_entropy(logits, probabilities),
        lambda logits: -(probabilities * nn.log_softmax(logits)).sum(axis=-1),
        logits,
    )


def test_great_logits_do_not_overflow() -> None:
    logits = mx.array([[1000.0, 999.0, -1000.0]])
    assert_close(training.softmax(logits), mx.softmax(logits, axis=-1))
    assert_close(training.cross_entropy(logits, mx.array([[0.0, 0.0, 1.0]])), mx.array([2000.3132]))


def test_probabilities_are_given_and_have_no_gradient() -> None:
    p = mx.softmax(random(3, 20), axis=-1)
    gradient = mx.grad(lambda p: training.cross_entropy(random(3, 20, seed=1), p).sum())(p)
    assert not mx.any(gradient).item()


@needs_native
def test_what_does_not_fit_is_refused_where_it_is_given() -> None:
    x, heads = mx.zeros((4, 5)), mx.zeros((1, 3, 4, 8))
    for call in (
        lambda: native.matmul(x, x),
        lambda: native.matmul(x.astype(mx.float16), x.T),
        lambda: native.matmul(x[None], x.T),
        lambda: native.causal_attention([heads, heads[:, :2], heads[:, :2]], 1.0),
        lambda: native.causal_attention([heads, heads, heads[:, :, :3]], 1.0),
        lambda: native.causal_attention([heads, heads], 1.0),
        lambda: native.cross_entropy(x, x[:2]),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
