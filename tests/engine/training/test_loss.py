"""The loss and its gradient, taken a few rows at a time, are those of the formula."""

import mlx.core as mx
import numpy as np

from mtplx.engine.training.loss import probabilities, soft_cross_entropy

HIDDEN, WEIGHT = mx.random.normal((300, 8), key=mx.random.key(0)), mx.random.normal((21, 8), key=mx.random.key(1))
TARGET = mx.softmax(mx.random.normal((50, 21), key=mx.random.key(2)), axis=-1)
TRUTH = mx.array(np.random.default_rng(0).integers(50, size=300))


def by_formula(hidden: mx.array) -> mx.array:
    logits = hidden @ WEIGHT.T
    log_q = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return -mx.sum(TARGET[TRUTH] * log_q)


def test_the_value_and_the_gradient_are_those_of_the_formula() -> None:
    expected, expected_gradient = mx.value_and_grad(by_formula)(HIDDEN)
    loss, _ = soft_cross_entropy(HIDDEN, WEIGHT, TARGET, TRUTH)
    gradient = mx.grad(lambda hidden: soft_cross_entropy(hidden, WEIGHT, TARGET, TRUTH)[1])(HIDDEN)
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(np.array(gradient), np.array(expected_gradient), rtol=1e-4, atol=1e-5)


def test_the_loss_is_least_where_the_block_comes_to_the_target_itself() -> None:
    target = probabilities(HIDDEN, WEIGHT)
    gradient = mx.grad(lambda hidden: soft_cross_entropy(hidden, WEIGHT, target, mx.arange(300))[1])(HIDDEN)
    np.testing.assert_allclose(np.array(gradient), 0, atol=1e-5)


def test_probabilities_are_those_of_the_product() -> None:
    expected = np.array(mx.softmax(HIDDEN @ WEIGHT.T, axis=-1))
    np.testing.assert_allclose(np.array(probabilities(HIDDEN, WEIGHT)), expected, rtol=1e-4, atol=1e-6)
