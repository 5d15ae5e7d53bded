"""A block to train begins where its target ends: at its last layer, fed at the size that layer expects."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mtplx.engine.models.fresh_block import NoBlockError, block_like
from mtplx.engine.models.mtp import draft_head
from mtplx.engine.models.parts import head_rows
from mtplx.kernels.accelerate import accelerate
from tests.tiny_configs import CONFIGS
from tests.tiny_models import tiny_model

TOKENS = mx.array([[(7 + 7919 * place) % 296 for place in range(64)]])
BY_ROWS = ["llama", "qwen2", "gemma3_text", "qwen3_moe", "gpt_oss"]


def before_norm(model: nn.Module) -> tuple[mx.array, mx.array]:
    """What enters the last layer of a Llama, and what leaves it, for `TOKENS`."""
    x = model.model.embed_tokens(TOKENS)
    for layer in model.layers[:-1]:
        x = layer(x, "causal")
    return x, model.layers[-1](x, "causal")


def size(rows: mx.array) -> mx.array:
    return mx.sqrt(mx.mean(rows * rows, axis=-1))


def test_the_layer_is_fed_with_the_unnormed_hidden_state_at_the_size_it_expects() -> None:
    model = tiny_model("llama")
    entering, leaving = before_norm(model)
    block = block_like(model)
    hidden = model.model(TOKENS)
    fed = block.combine(hidden, 3.0 * mx.random.normal(hidden.shape))
    weight = model.model.norm.weight
    assert float(mx.abs(weight).min()) > 0.5  # else what is below is held at that
    direction = leaving / size(leaving)[..., None]
    assert mx.allclose(fed / size(fed)[..., None], direction, atol=1e-3).item()
    assert abs(float(mx.median(size(fed))) / float(mx.median(size(entering))) - 1.0) < 0.05


def test_small_weights_of_the_final_norm_are_not_divided_by() -> None:
    model = tiny_model("llama")
    model.model.norm.weight[:2] = mx.array([0.001, -0.001])
    shares = mx.diag(block_like(model).projection.weight[:, 48:])
    assert float(shares[0]) == -float(shares[1])
    assert float(mx.abs(shares).max()) < 3 * float(mx.median(mx.abs(shares)))


@pytest.mark.parametrize("model_type", BY_ROWS)
@pytest.mark.parametrize("form", ["plain", "quantized", "native"])
def test_layer_and_final_norm_are_the_targets_own(model_type: str, form: str) -> None:
    model = tiny_model(model_type)
    if form != "plain":
        nn.quantize(model, 32, 8, class_predicate=fits)
    x = mx.random.normal((1, 5, model.model.norm.weight.size), key=mx.random.key(3))
    expected = model.layers[-1](x, mask="causal")
    normed = model.model.norm(expected)
    if form == "native":
        accelerate(model)
    block = block_like(model)
    assert mx.allclose(block.run_layer(x), expected, rtol=1e-3, atol=1e-3).item()
    assert mx.allclose(block.norm(expected), normed, rtol=1e-3, atol=1e-3).item()
    assert {array.dtype for _, array in tree_flatten(block.parameters())} == {mx.float32}


def fits(path: str, module: nn.Module) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


@pytest.mark.parametrize("model_type", ["mamba2", "falcon_h1", "gemma3n"])
def test_a_model_without_such_a_layer_is_told_why(model_type: str) -> None:
    with pytest.raises(NoBlockError, match="its last layer"):
        block_like(tiny_model(model_type))


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
@pytest.mark.parametrize("form", ["plain", "quantized", "native"])
def test_a_part_of_the_vocabulary_has_the_output_heads_logits_in_four_bits(model_type: str, form: str) -> None:
    """Of one with a head of its own, and of one whose embedding is the head."""
    model = tiny_model(model_type, {**CONFIGS[model_type], "hidden_size": 64})
    block = block_like(model)
    if form != "plain":
        nn.quantize(model, 32, 8, class_predicate=fits)
    if form == "native":
        accelerate(model)
    token_ids = np.array([0, 5, 17, 255], dtype=np.int32)
    part, whole = draft_head(model, block, token_ids), draft_head(model, block)
    hidden = mx.random.normal((3, 64), key=mx.random.key(5))
    own = whole.project(mx.eye(64))[:, mx.array(token_ids)].T  # the head's weights, however it holds them
    rounded = mx.dequantize(*mx.quantize(own, group_size=32, bits=4), group_size=32, bits=4)
    expected = hidden @ rounded.T
    assert mx.allclose(part.project(hidden), expected, rtol=1e-4, atol=1e-4).item()
    assert mx.allclose(head_rows(model, token_ids), own, rtol=1e-3, atol=1e-3).item()
