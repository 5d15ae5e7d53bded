"""What is measured of a block is what a plain count of its drafts comes to."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mtplx.engine.models.fresh_block import block_like
from mtplx.engine.models.parts import embedding_of, head_of, head_rows
from mtplx.engine.models.running import make_target
from mtplx.engine.training.evaluation import HeldOut
from mtplx.engine.training.pieces import cut
from mtplx.engine.training.states import StateFile, States
from mtplx.engine.training.texts import Text
from tests.engine.training.predictable import predictable_model

TEXTS = [Text(tuple(range(60, 75)), 4), Text(tuple(range(80, 90)), 7)]
TOKEN_IDS = np.arange(50, 85, dtype=np.int32)
NUM_STEPS = 2


def test_shares_are_those_of_a_plain_count(tmp_path: Path) -> None:
    loaded = predictable_model()
    states = States(StateFile(tmp_path / "states", [], 32, 0), make_target(loaded.model), TEXTS)
    block, embed = block_like(loaded.model), embedding_of(loaded.model)
    size = block.norm.weight.size
    noise = mx.random.normal((size, 2 * size), key=mx.random.key(0)) / size**0.5
    # The embedding tells all: with some noise the block is right at times.
    block.projection.weight = mx.concatenate([mx.eye(size), mx.zeros((size, size))], axis=1) + 0.7 * noise
    weight = head_rows(loaded.model, TOKEN_IDS)
    held_out = HeldOut(
        cut(TEXTS, 512),
        TEXTS,
        states,
        num_steps=NUM_STEPS,
        weight=weight,
        token_ids=TOKEN_IDS,
        project=head_of(loaded.model),
    )
    measured = held_out.measure(block, embed)

    agreements, survivals, chances = ([[] for _ in range(NUM_STEPS)] for _ in range(3))
    for text in TEXTS:
        hidden = loaded.model.model(mx.array([text.tokens[:-1]]))[0]
        p = mx.softmax(loaded.model.lm_head(hidden), axis=-1)
        for pair in range(len(text.tokens) - 2):
            cache = block.make_cache()
            tokens = mx.array([text.tokens[1 : pair + 2]])
            state = block(hidden[None, : pair + 1], embed(tokens), cache)[:, -1:]
            alive = pair + 2 >= text.num_given
            for step in range(min(NUM_STEPS, len(text.tokens) - 2 - pair)):
                if step:
                    state = block(state, embed(mx.array([[text.tokens[pair + 1 + step]]])), cache)
                if pair + 2 + step < text.num_given:
                    continue
                q = mx.softmax(state[0, 0] @ weight.T)
                truth = p[pair + 1 + step]
                agrees = int(TOKEN_IDS[mx.argmax(q).item()]) == mx.argmax(truth).item()
                agreements[step].append(agrees)
                chances[step].append(mx.minimum(truth[mx.array(TOKEN_IDS)], q).sum().item())
                alive = alive and agrees
                if pair + 2 >= text.num_given:
                    survivals[step].append(alive)
    assert measured.agreement == pytest.approx([np.mean(each) for each in agreements])
    assert measured.survival == pytest.approx([np.mean(each) for each in survivals])
    assert measured.expected == pytest.approx([np.mean(each) for each in chances], abs=2e-3)
    assert measured.num_places == len(agreements[0])
    assert 0 < measured.survival[1] < measured.agreement[1] < 1
