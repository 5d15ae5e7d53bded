"""The chained forward over whole texts is what a block does when it drafts, written out one chain after the other."""

import mlx.core as mx
import numpy as np
import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.models.fresh_block import block_like
from mtplx.engine.models.mtp import MtpBlock
from mtplx.engine.training.chain import ChainView, chained_states, with_dense_products
from tests.tiny_models import tiny_model

NUM_STEPS, NUM_PAIRS = 3, 7


def random(*shape: int, seed: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


def drafted(block: MtpBlock, hidden: mx.array, embeddings: mx.array, start: int) -> list[mx.array]:
    """Hidden states [D] of a chain that starts at that pair: true ones come first, then each step feeds the next."""
    cache = block.make_cache()
    states = [block(hidden[None, : start + 1], embeddings[None, : start + 1], cache)[0, -1]]
    for step in range(1, NUM_STEPS):
        states.append(block(states[-1][None, None], embeddings[None, None, start + step], cache)[0, 0])
    return states


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma3_text", "qwen3_moe"])
def test_every_chain_is_what_the_block_drafts_from_there(model_type: str) -> None:
    block = block_like(tiny_model(model_type))
    size = block.norm.weight.size
    hidden = random(2, NUM_PAIRS, size, seed=1)
    embeddings = random(2, NUM_PAIRS + NUM_STEPS, size, seed=2)
    # A fresh block makes nothing of embeddings.
    block.projection.weight += 0.3 * random(*block.projection.weight.shape, seed=3) / size**0.5
    expected = np.array(
        [[drafted(block, hidden[text], embeddings[text], pair) for pair in range(NUM_PAIRS)] for text in range(2)]
    )  # [B, T, S, D]
    steps = [embeddings[:, step : step + NUM_PAIRS] for step in range(NUM_STEPS)]
    states = chained_states(with_dense_products(block), hidden, steps)
    for step in range(NUM_STEPS):
        np.testing.assert_allclose(np.array(states[step]), expected[:, :, step], rtol=1e-3, atol=1e-3)


def test_attention_with_sinks_is_refused_in_words() -> None:
    queries = mx.zeros((1, 2, 3, 4))
    view = ChainView()
    view.update_and_fetch(queries, queries)
    with pytest.raises(InvalidRequestError, match="serve it without"):
        view.attend(queries, None, scale=1.0, sinks=mx.zeros(2))
