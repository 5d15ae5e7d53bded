"""A training begins with the projection that comes nearest to what is wanted."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mtplx.engine.models.fresh_block import block_like
from mtplx.engine.models.parts import embedding_of
from mtplx.engine.training.beginning import fit_projection
from mtplx.engine.training.pieces import cut
from mtplx.engine.training.texts import Text
from tests.engine.training.predictable import CONFIG, VOCAB_SIZE, predictable_model

SIZE = CONFIG["hidden_size"]
RANDOM = np.random.default_rng(0)


class Known:
    """States of texts, as they are given."""

    def __init__(self, states: Sequence[np.ndarray]) -> None:
        self._states = states

    def of(self, index: int) -> np.ndarray:
        return self._states[index]


def written(num_given: int, num_tokens: int = 60) -> Text:
    return Text(tuple(RANDOM.integers(0, VOCAB_SIZE, num_tokens).tolist()), num_given)


def test_where_a_linear_map_of_row_and_token_gives_the_next_row_it_is_found() -> None:
    """Before the output began the rows follow no rule, and they are not looked at."""
    model = predictable_model().model
    block, embed = block_like(model), embedding_of(model)
    of_hidden = np.asarray(block.projection.weight)[:, SIZE:]
    rule = RANDOM.standard_normal((2 * SIZE, SIZE)) / np.sqrt(SIZE)
    texts, states = [written(num_given=20) for _ in range(40)], []
    for text in texts:
        rows = RANDOM.standard_normal((text.num_rows, SIZE))
        for row in range(text.num_given, text.num_rows):
            token = np.asarray(block.embedding_norm(embed(mx.array([text.tokens[row]]))))[0]
            rows[row] = np.concatenate([token, np.asarray(block.hidden_norm(mx.array(rows[row - 1])))]) @ rule
            rows[row] /= np.sqrt(np.mean(rows[row] ** 2))  # a norm leaves it as it is
        states.append(rows)
    pieces = cut(texts, 32)
    fit_projection(block, embed, pieces, texts, Known(states))
    text, rows = texts[3], states[3]
    given = mx.array(rows[None, 30:50].astype(np.float32))
    made = np.asarray(block.combine(given, embed(mx.array(text.tokens[31:51]))[None]))[0]
    wanted = rows[31:51] @ of_hidden.T
    assert np.mean((made - wanted) ** 2) < 0.1 * np.mean(wanted**2)


def test_a_text_of_one_pair_will_do() -> None:
    model = predictable_model().model
    block, texts = block_like(model), [written(1, 3)]
    fit_projection(block, embedding_of(model), cut(texts, 8), texts, Known([np.ones((2, SIZE))]))
    assert np.isfinite(np.asarray(block.projection.weight)).all()
