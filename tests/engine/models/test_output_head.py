"""The output head sees only the rows that need logits, and one hook serves all targets of a model."""

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import llama

from mtplx.engine.models.row_target import RowTarget
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Rows, Target
from tests.tiny_configs import CONFIGS, VOCAB_SIZE
from tests.tiny_models import tiny_model

TOKENS = [(5 + 37 * place) % 250 for place in range(9)]
WAYS: dict[str, Callable[[nn.Module], Target]] = {
    "rows": lambda model: RowTarget(model, model.make_cache()),
    "sequential": lambda model: SequentialTarget(model, model.make_cache),
}


class Watched(nn.Linear):
    """A head that notes how many rows it sees."""

    def __call__(self, hidden: mx.array) -> mx.array:
        self.seen.append(hidden.size // hidden.shape[-1])
        return super().__call__(hidden)


class WatchedEmbedding(nn.Embedding):
    def as_linear(self, hidden: mx.array) -> mx.array:
        self.seen.append(hidden.size // hidden.shape[-1])
        return super().as_linear(hidden)


def watched_model(tied: bool) -> tuple[nn.Module, list[int]]:
    """A model, and the list of how many rows its head sees at each of its products."""
    model = tiny_model("llama", CONFIGS["llama"] | {"tie_word_embeddings": tied})
    head = model.model.embed_tokens if tied else model.lm_head
    head.__class__ = WatchedEmbedding if tied else Watched
    seen: list[int] = []
    object.__setattr__(head, "seen", seen)
    return model, seen


@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_logits", [1, 4, 9])
def test_the_head_sees_only_the_rows_that_need_logits(way: str, tied: bool, num_logits: int) -> None:
    model, seen = watched_model(tied)
    target = WAYS[way](model)
    [logits] = target.forward([Rows(target.new_cache(), TOKENS, num_logits)])
    assert logits.shape == (num_logits, VOCAB_SIZE)
    assert seen == [num_logits]
    np.testing.assert_allclose(logits, np.array(model(mx.array(TOKENS)[None])[0, -num_logits:]), rtol=1e-4, atol=1e-4)


class Headless(llama.Model):
    """Keeps its head where nobody looks for one."""

    def __call__(self, inputs: mx.array, cache: object = None) -> mx.array:
        return self.product(self.model(inputs, cache))


@pytest.mark.parametrize("way", WAYS)
def test_a_head_that_is_not_found_costs_time_alone(way: str) -> None:
    model = tiny_model("llama")
    expected = np.array(model(mx.array(TOKENS)[None])[0, -3:])
    model.product = model.pop("lm_head")
    model.__class__ = Headless
    target = WAYS[way](model)
    [logits] = target.forward([Rows(target.new_cache(), TOKENS, 3)])
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_several_sequences_go_through_the_head_together() -> None:
    model, seen = watched_model(tied=False)
    target = WAYS["rows"](model)
    batch = [Rows(target.new_cache(), TOKENS[: count + 2], count) for count in (0, 1, 3)]
    assert [len(logits) for logits in target.forward(batch)] == [0, 1, 3]
    assert seen == [4]


def test_a_second_target_of_a_model_adds_no_second_hook() -> None:
    model, seen = watched_model(tied=False)
    first = WAYS["rows"](model)
    kind = type(model.lm_head)
    second = WAYS["sequential"](model)
    assert type(model.lm_head) is kind
    for target, num_logits in ((first, 2), (second, 3), (first, 1)):
        target.forward([Rows(target.new_cache(), TOKENS, num_logits)])
    assert seen == [2, 3, 1]
