"""A model in fewer bits shares all else with the one it is made from, which stays as it is."""

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import pytest

from mtplx.engine.drafters.requantised import held_bits, requantised
from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.inputs import float_inputs
from mtplx.kernels.layers import NativeEmbedding, NativeLinear
from tests.kernels.availability import needs_native
from tests.tiny_configs import CONFIGS
from tests.tiny_models import tiny_model

TOKENS = mx.array([[5, 6, 7, 8]])


def quantized(bits: int, *, tied: bool = False) -> nn.Module:
    model = tiny_model("qwen3", CONFIGS["qwen3"] | {"tie_word_embeddings": tied})
    nn.quantize(model, group_size=32, bits=bits)
    return model


def native(bits: int, *, tied: bool = False) -> nn.Module:
    model = quantized(bits, tied=tied)
    accelerate(model)
    return model


def native_dense(bits: int) -> nn.Module:
    model = tiny_model("qwen3")
    accelerate(model)
    return model


FORMS = pytest.mark.parametrize(
    "make",
    [
        quantized,
        pytest.param(native, marks=needs_native),
        pytest.param(native_dense, marks=needs_native),
        lambda bits: tiny_model("qwen3"),
    ],
    ids=["quantized", "native", "native dense", "dense"],
)


@FORMS
def test_every_product_has_the_bits_that_are_asked(make: Callable[[int], nn.Module]) -> None:
    model = make(8)
    twin = requantised(model, 3)
    assert twin is not None
    products = [bits for layer in twin.modules() if (bits := held_bits(layer))]
    assert products == [3] * (3 * 7 + 1)
    assert {held_bits(layer) for layer in model.modules()} in ({0, 8}, {0, 32})


@FORMS
def test_its_products_are_the_models_own_rounded_once_more(make: Callable[[int], nn.Module]) -> None:
    """With as many bits as tell apart what is left, the twin says nearly what the model says; with fewer, less so."""
    model = make(8)
    expected = model(TOKENS)
    errors = []
    for bits in (6, 4, 2):
        twin = requantised(model, bits)
        assert twin is not None
        errors.append((mx.abs(twin(TOKENS) - expected).max() / mx.abs(expected).max()).item())
    assert 0.0 < errors[0] < 0.2
    assert errors == sorted(errors)
    assert mx.array_equal(model(TOKENS), expected)


@needs_native
def test_a_native_twin_is_native_and_says_what_a_stock_one_says() -> None:
    twin, stock = requantised(native(8), 3), requantised(quantized(8), 3)
    assert twin is not None
    assert stock is not None
    assert isinstance(twin.layers[0].mlp.up_proj, NativeLinear)
    with float_inputs():
        assert mx.allclose(twin(TOKENS), stock(TOKENS), atol=1e-3)


def test_what_has_few_bits_already_is_shared() -> None:
    model = quantized(4)
    model.layers[1].self_attn.q_proj = nn.QuantizedLinear(64, 64, bias=False, group_size=32, bits=8)
    twin = requantised(model, 4)
    assert twin is not None
    assert twin.layers[1].self_attn.q_proj.bits == 4
    assert twin.layers[1].self_attn.k_proj.weight is model.layers[1].self_attn.k_proj.weight
    assert twin.model.norm.weight is model.model.norm.weight


@pytest.mark.parametrize("make", [quantized, pytest.param(native, marks=needs_native)])
def test_the_embedding_is_shared_when_it_is_the_head_too(make: Callable[..., nn.Module]) -> None:
    model = make(8, tied=True)
    twin = requantised(model, 4)
    assert twin is not None
    assert twin.model.embed_tokens.weight is model.model.embed_tokens.weight
    if isinstance(model.model.embed_tokens, NativeEmbedding):
        assert twin.model.embed_tokens.tiles is model.model.embed_tokens.tiles


def test_there_is_no_twin_with_nothing_to_round() -> None:
    assert requantised(quantized(4), 4) is None
