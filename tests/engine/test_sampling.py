"""Logits to distributions, each step against its definition; and drawing."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.errors import EngineError, NonFiniteLogitsError
from mtplx.engine.sampling import (
    TokenHistory,
    adjust,
    as_distribution,
    distribution,
    draw,
    draw_coupled,
    greedy_choice,
    most_likely,
    sample_from_distribution,
)
from mtplx.engine.types import SamplingParams
from mtplx.engine.vocabulary_part import PartOfVocabulary

LOGITS = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)

logits = st.lists(st.floats(-30, 30, width=32), min_size=6, max_size=6).map(lambda x: np.array(x, dtype=np.float32))
temperatures = st.floats(0.1, 2.0)


def distribution_of(params: SamplingParams, scores: np.ndarray = LOGITS) -> np.ndarray:
    return distribution(adjust(scores, params, TokenHistory()), params)


def softmax(scores: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    weights = np.exp(scores.astype(np.float64) / temperature)
    return weights / weights.sum()


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.0 + 2**-23]), min_size=6, max_size=6),
    st.dictionaries(st.integers(0, 5), st.sampled_from([-100.0, -1.0, 2**-30, 0.5, 100.0])),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 2),
)
def test_the_greedy_choice_is_the_most_likely_token_after_all_changes(
    values: list[float], logit_bias: dict[int, float], presence_penalty: float, min_tokens: int
) -> None:
    row = np.array(values, dtype=np.float32)
    params = SamplingParams(temperature=0.0, logit_bias=logit_bias, presence_penalty=presence_penalty)
    history = TokenHistory((1, 2), ends=frozenset({3}), min_tokens=min_tokens)
    history.push(4)
    before = row.copy()
    assert greedy_choice(row, params, history, 1) == most_likely(adjust(row, params, history))
    np.testing.assert_array_equal(row, before)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_there_is_no_greedy_choice_of_what_is_not_finite(value: float) -> None:
    with pytest.raises(NonFiniteLogitsError, match="after 7 tokens"):
        greedy_choice(np.array([1.0, value], dtype=np.float32), SamplingParams(temperature=0.0), TokenHistory(), 7)


@given(logits, temperatures)
def test_without_cuts_it_is_the_softmax_at_the_temperature(scores: np.ndarray, temperature: float) -> None:
    np.testing.assert_allclose(
        distribution_of(SamplingParams(temperature=temperature), scores), softmax(scores, temperature), rtol=1e-9
    )


@given(logits, st.floats(0.05, 0.99))
def test_top_p_keeps_the_smallest_set_of_likeliest_tokens_that_reaches_it(scores: np.ndarray, top_p: float) -> None:
    p = softmax(scores)
    kept = distribution_of(SamplingParams(top_p=top_p), scores) > 0.0
    assert p[kept].sum() >= top_p - 1e-9
    assert p[kept].sum() - p[kept].min() < top_p + 1e-9
    assert kept.all() or p[kept].min() >= p[~kept].max() - 1e-12


@given(logits, st.integers(1, 8))
def test_top_k_keeps_the_k_likeliest(scores: np.ndarray, top_k: int) -> None:
    kept = distribution_of(SamplingParams(top_k=top_k), scores) > 0.0
    p = softmax(scores)
    assert kept.sum() == min(top_k, len(scores))
    assert kept.all() or p[kept].min() >= p[~kept].max() - 1e-12


@given(logits, st.floats(0.01, 1.0))
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(scores: np.ndarray, min_p: float) -> None:
    p = softmax(scores)
    result = distribution_of(SamplingParams(min_p=min_p), scores)
    clear = abs(p - min_p * p.max()) > 1e-9
    assert ((result > 0.0) == (p >= min_p * p.max()))[clear].all()


def test_cuts_apply_to_what_the_one_before_left() -> None:
    """Top-k leaves {0, 1} with 0.73 and 0.27; top-p 0.7 then keeps only token 0, though its share of all is 0.64."""
    assert softmax(LOGITS)[0] < 0.7
    np.testing.assert_allclose(distribution_of(SamplingParams(top_k=2, top_p=0.7)), [1, 0, 0, 0])


def test_among_equals_cuts_keep_the_lower_ids() -> None:
    equal = np.zeros(4, dtype=np.float32)
    np.testing.assert_allclose(distribution_of(SamplingParams(top_k=2), equal), [0.5, 0.5, 0, 0])
    assert most_likely(np.array([1.0, 3.0, 3.0])) == 1


def test_a_tiny_temperature_neither_overflows_nor_gives_nan() -> None:
    for temperature in (1e-300, 1e-320, 5e-324):
        np.testing.assert_allclose(distribution_of(SamplingParams(temperature=temperature)), [1, 0, 0, 0])


def test_a_top_p_of_0_keeps_the_likeliest_token() -> None:
    np.testing.assert_allclose(distribution_of(SamplingParams(top_p=0.0)), [1, 0, 0, 0])


def test_penalties_follow_their_definitions() -> None:
    history = TokenHistory(prompt=[0])
    for token in (1, 1, 3):
        history.push(token)
    repetition = adjust(LOGITS, SamplingParams(repetition_penalty=2.0), history)
    np.testing.assert_allclose(repetition, [1.0, 0.5, 0.0, -2.0])  # prompt and output; negative logits move down too
    presence = adjust(LOGITS, SamplingParams(presence_penalty=0.5), history)
    np.testing.assert_allclose(presence, [2.0, 0.5, 0.0, -1.5])  # output only
    frequency = adjust(LOGITS, SamplingParams(frequency_penalty=0.5), history)
    np.testing.assert_allclose(frequency, [2.0, 0.0, 0.0, -1.5])
    np.testing.assert_allclose(adjust(LOGITS, SamplingParams(logit_bias={2: 7.0}), history), [2.0, 1.0, 7.0, -1.0])


class Allowing:
    """A grammar that allows some tokens and never changes."""

    def __init__(self, *tokens: int) -> None:
        self._tokens = tokens

    def allowed(self) -> np.ndarray:
        return np.isin(np.arange(len(LOGITS)), self._tokens)

    def after(self, token: int) -> "Allowing":
        return self


settings = st.builds(
    SamplingParams,
    temperature=st.sampled_from([1e-320, 0.5, 1.0, 2.0]),
    top_p=st.sampled_from([0.0, 0.5, 1.0]),
    top_k=st.integers(0, 4),
    min_p=st.sampled_from([0.0, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([0.1, 1.0, 10.0]),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    logit_bias=st.dictionaries(st.integers(0, 3), st.floats(-100, 100)),
)
some_tokens = st.sets(st.integers(0, 3), min_size=1)


@given(settings, some_tokens)
def test_what_the_grammar_forbids_has_no_chance_under_any_settings(params: SamplingParams, allowed: set[int]) -> None:
    history = TokenHistory([0, 1], Allowing(*allowed))
    for token in (1, 2, 2):
        history.push(token)
    scores = adjust(LOGITS, params, history)
    p = distribution(scores, params)
    assert p.sum() == pytest.approx(1.0)
    assert set(np.flatnonzero(p)) <= allowed
    assert most_likely(scores) in allowed
    assert draw_coupled(p, np.zeros(len(p))) in allowed


@given(settings, some_tokens, some_tokens, st.booleans())
def test_a_part_of_the_vocabulary_is_adjusted_as_the_whole(
    params: SamplingParams, tokens: set[int], allowed: set[int], may_end: bool
) -> None:
    part = PartOfVocabulary(np.array(sorted(tokens)), len(LOGITS))
    history = TokenHistory([0, 1], Allowing(*allowed), ends={2, 3}, min_tokens=0 if may_end else 9)
    for token in (1, 2, 2):
        history.push(token)
    of_part, whole = adjust(LOGITS[part.ids], params, history, part), adjust(LOGITS, params, history)[part.ids]
    if may_end or of_part.max() == whole.max():  # else there is nothing but an end in the part, which is no reason here
        np.testing.assert_array_equal(of_part, whole)


def test_a_grammar_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(EngineError, match="allows no token"):
        adjust(LOGITS, SamplingParams(), TokenHistory(grammar=Allowing()))


def test_adjusting_leaves_the_models_logits_alone() -> None:
    before = LOGITS.copy()
    adjust(LOGITS, SamplingParams(logit_bias={0: -100.0}), TokenHistory())
    np.testing.assert_array_equal(LOGITS, before)


def test_looking_ahead_adds_to_a_history_and_leaves_it_as_it_is() -> None:
    history = TokenHistory([5])
    history.push(6)
    ahead = history.ahead()
    for token in (6, 7):
        ahead.push(token)
    assert (history.seen, history.output_counts) == ({5, 6}, {6: 1})
    assert (ahead.seen, ahead.output_counts) == ({5, 6, 7}, {6: 2, 7: 1})


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.5]), min_size=1, max_size=6).filter(any), st.floats(0, 1, exclude_max=True)
)
def test_drawing_inverts_the_cumulative_distribution(weights: list[float], uniform: float) -> None:
    p = np.array(weights) / sum(weights)
    token = draw(p, uniform)
    assert p[token] > 0.0
    assert p[:token].sum() <= uniform + 1e-12
    assert p[: token + 1].sum() > uniform - 1e-12


@pytest.mark.parametrize("size", [255, 256, 257, 5000])
def test_drawing_from_a_whole_vocabulary_inverts_the_cumulative_distribution_too(size: int) -> None:
    random = np.random.default_rng(size)
    probabilities = np.where(random.random(size) < 0.7, 0.0, random.random(size))
    probabilities[size // 3 : 2 * size // 3] = 0.0  # whole blocks of them
    probabilities /= probabilities.sum()
    cumulative = np.cumsum(probabilities)
    for token in np.flatnonzero(probabilities)[:: size // 50]:
        middle = cumulative[token] - probabilities[token] / 2
        assert draw(probabilities, middle / cumulative[-1]) == token
    assert draw(probabilities, 0.0) == np.flatnonzero(probabilities)[0]


def test_the_last_number_below_one_draws_a_possible_token() -> None:
    assert draw(np.array([0.3, 0.7, 0.0]), 1.0 - 2.0**-53) == 1


@pytest.mark.parametrize("array", [np.array, mx.array, list])
def test_the_public_sampler_takes_arrays_of_any_kind(array: type) -> None:
    tokens = [sample_from_distribution(array([0.0, 0.25, 0.75]), np.random.default_rng(seed)) for seed in range(400)]
    assert set(tokens) == {1, 2}
    assert 50 < tokens.count(1) < 150  # 100 expected; five standard deviations either way


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_probabilities_of_every_precision_become_a_distribution(dtype: mx.Dtype) -> None:
    np.testing.assert_array_equal(as_distribution(mx.array([0.125, 0.25, 0.125], dtype=dtype)), [0.25, 0.5, 0.25])
