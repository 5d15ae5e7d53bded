"""The target's hidden states of a sequence's rows: those its output head sees, of committed rows, once."""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
import pytest

from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.running import make_target
from mtplx.engine.models.target import Rows
from mtplx.engine.types import HostStates
from tests.engine.kinds import TinyModels

TOKENS = [(5 + 37 * place) % 250 for place in range(24)]
KINDS = ["native llama", "llama", "gemma3_text", "qwen3_next", "deepseek_v3"]


def piece(first: int, num_rows: int) -> HostStates:
    """States [n, 1] that tell their positions."""
    return np.arange(first, first + num_rows, dtype=np.float32)[:, None]


def held(rows: HiddenRows) -> tuple[int, list[int]]:
    taken = rows.take()
    assert taken is not None
    return taken.position, [int(state) for state in taken.states[:, 0]]


def test_states_are_taken_once_and_go_on_from_there() -> None:
    rows = HiddenRows(most_rows=100)
    assert rows.take() is None
    rows.append(0, piece(0, 3))
    rows.append(3, piece(3, 2))
    rows.commit(num_dropped=0)
    assert held(rows) == (0, [0, 1, 2, 3, 4])
    assert rows.take() is None
    rows.append(5, piece(5, 1))
    assert held(rows) == (5, [5])


def test_dropped_rows_are_forgotten_over_several_pieces() -> None:
    rows = HiddenRows(most_rows=100)
    rows.append(0, piece(0, 3))
    rows.append(3, piece(30, 2))
    rows.append(5, piece(50, 2))
    rows.commit(num_dropped=5)
    rows.append(2, piece(2, 1))
    assert held(rows) == (0, [0, 1, 2])


def test_of_rows_that_nobody_takes_the_newest_are_held() -> None:
    rows = HiddenRows(most_rows=4)
    for first in range(0, 30, 3):
        rows.append(first, piece(first, 3))
        rows.commit(num_dropped=0)
    assert held(rows) == (26, [26, 27, 28, 29])


def test_rows_before_a_gap_are_let_go() -> None:
    rows = HiddenRows(most_rows=100)
    rows.append(0, piece(0, 3))
    rows.append(7, piece(7, 2))
    assert held(rows) == (7, [7, 8])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    folder: Path = tmp_path_factory.mktemp("hidden")
    return TinyModels(folder)


def logits_of(model: nn.Module, states: mx.array) -> npt.NDArray[np.float32]:
    """What the output head makes of hidden states [n, D]."""
    return np.array(model.lm_head(states) if "lm_head" in model else model.model.embed_tokens.as_linear(states))


@pytest.mark.parametrize("kind", KINDS)
def test_the_states_are_what_the_output_head_sees_of_every_row(tiny: TinyModels, kind: str) -> None:
    model = tiny[kind].model
    target = make_target(model)
    cache = target.new_cache()
    cache.hidden = HiddenRows(most_rows=100)
    [logits] = target.forward([Rows(cache, TOKENS, len(TOKENS))])
    cache.commit(len(TOKENS))
    taken = cache.hidden.take()
    assert taken is not None
    assert taken.position == 0
    np.testing.assert_allclose(logits_of(model, mx.array(taken.states)), logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_company_and_rows_without_logits_leave_the_states_as_they_are(tiny: TinyModels, kind: str) -> None:
    """Prefill in chunks, rounds whose drafts fail at different places, beside another text that keeps no states."""
    target = make_target(tiny[kind].model)
    alone = target.new_cache()
    alone.hidden = HiddenRows(most_rows=100)
    for token in TOKENS:
        target.forward([Rows(alone, [token], 1)])
        alone.commit(1)
    expected = alone.hidden.take()

    cache, other = target.new_cache(), target.new_cache()
    cache.hidden = HiddenRows(most_rows=100)
    target.forward([Rows(other, [3, 4], 0), Rows(cache, TOKENS[:5], 0)])
    cache.commit(5)
    target.forward([Rows(cache, TOKENS[5:8], 0)])
    cache.commit(3)
    while (num := cache.num_committed) < len(TOKENS):
        kept = min(1 + num % 3, len(TOKENS) - num)
        target.forward([Rows(other, [7], 1), Rows(cache, [*TOKENS[num : num + kept], *[9] * (num % 2)], 2)])
        cache.commit(kept)
    taken = cache.hidden.take()
    assert expected is not None
    assert taken is not None
    assert taken.position == 0
    assert taken.states.shape == expected.states.shape
    close = 0.0 if kind == "native llama" else 2e-3
    np.testing.assert_allclose(taken.states, expected.states, rtol=close, atol=close)
    assert other.hidden is None


def test_states_that_are_kept_do_not_keep_those_of_rows_beside_them(tiny: TinyModels) -> None:
    target = make_target(tiny["llama"].model)
    cache, prompt = target.new_cache(), target.new_cache()
    cache.hidden = HiddenRows()
    num_bytes = []
    for _ in range(2):
        for _ in range(6):
            target.forward([Rows(cache, [5], 1), Rows(prompt, TOKENS * 4, 0)])
            prompt.rollback()
            cache.commit(1)
        num_bytes.append(mx.get_active_memory())
    assert num_bytes[1] - num_bytes[0] < 2 * len(TOKENS) * 4 * 48 * 4  # bytes of a forward's states


@pytest.mark.parametrize("kind", ["native llama", "llama"])
def test_logits_are_the_same_bits_whether_states_are_kept_or_not(tiny: TinyModels, kind: str) -> None:
    target = make_target(tiny[kind].model)
    keeping, plain = target.new_cache(), target.new_cache()
    keeping.hidden = HiddenRows(most_rows=100)
    [kept] = target.forward([Rows(keeping, TOKENS, 4)])
    [expected] = target.forward([Rows(plain, TOKENS, 4)])
    np.testing.assert_array_equal(kept, expected)
