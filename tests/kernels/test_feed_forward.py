"""A feed-forward layer is swapped for the activation it turns out to have, and for none if it has another."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.feed_forward import NativeFeedForward, native_feed_forward, trained_feed_forward
from tests.kernels.availability import needs_native

pytestmark = needs_native


class FeedForward(nn.Module):
    """As mlx-lm's models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.QuantizedLinear(64, 96, bias=False, group_size=32)
        self.up_proj = nn.QuantizedLinear(64, 96, bias=False, group_size=32)
        self.down_proj = nn.QuantizedLinear(96, 64, bias=False, group_size=32)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(self.activate(self.gate_proj(x)) * self.up_proj(x))

    def activate(self, gate: mx.array) -> mx.array:
        return nn.silu(gate)


class Gelu(FeedForward):
    def activate(self, gate: mx.array) -> mx.array:
        return nn.gelu(gate)


class ApproximateGelu(FeedForward):
    def activate(self, gate: mx.array) -> mx.array:
        return nn.gelu_approx(gate)


class Relu(FeedForward):
    def activate(self, gate: mx.array) -> mx.array:
        return nn.relu(gate)


class Limited(FeedForward):
    def activate(self, gate: mx.array) -> mx.array:
        return nn.silu(mx.minimum(gate, 7.0))


class Scaled(FeedForward):
    def __call__(self, x: mx.array) -> mx.array:
        return 0.5 * super().__call__(x)


class Residual(FeedForward):
    def __call__(self, x: mx.array, residual: mx.array) -> mx.array:
        return super().__call__(x) + residual


class Weighted(FeedForward):
    def __init__(self) -> None:
        super().__init__()
        self.weight = mx.ones(1)


def swapped(kind: type[FeedForward]) -> nn.Module:
    mx.random.seed(7)
    model = nn.Sequential(kind())
    accelerate(model)
    return model.layers[0]


@pytest.mark.parametrize(
    ("kind", "activation"), [(FeedForward, "silu"), (Gelu, "gelu"), (ApproximateGelu, "gelu_tanh")]
)
def test_the_activation_is_found(kind: type[FeedForward], activation: str) -> None:
    layer = swapped(kind)
    assert isinstance(layer, NativeFeedForward)
    assert layer.activation == activation
    mx.random.seed(7)
    stock, x = kind(), mx.random.normal((3, 1, 64))
    assert mx.allclose(layer(x), stock(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Relu, Limited, Scaled, Residual, Weighted])
def test_a_layer_that_does_something_else_stays(kind: type[FeedForward]) -> None:
    assert type(swapped(kind)) is kind


def test_a_layer_whose_products_are_not_native_stays() -> None:
    assert native_feed_forward(FeedForward()) is None


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(64, 96), nn.Linear(64, 96), nn.Linear(96, 64)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


def test_a_layer_being_trained_keeps_its_parameters_and_their_gradients() -> None:
    layer, x = Trained(), mx.random.normal((5, 64), key=mx.random.key(1))
    swap = trained_feed_forward(layer)
    assert swap is not None
    losses = [nn.value_and_grad(each, lambda model: model(x).sum())(each)[1] for each in (layer, swap)]
    expected, given = (dict(tree_flatten(gradients)) for gradients in losses)
    assert given.keys() == expected.keys()
    for name, gradient in expected.items():
        assert mx.allclose(given[name], gradient, rtol=1e-4, atol=1e-4).item(), name


def test_only_a_layer_of_plain_products_is_one_to_be_trained() -> None:
    assert trained_feed_forward(FeedForward()) is None
    assert native_feed_forward(Trained()) is None
