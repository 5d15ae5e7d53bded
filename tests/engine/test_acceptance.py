"""Acceptance keeps the target's law: by enumeration of every draft, by algebra, and against rules that are wrong."""

import itertools
from collections.abc import Sequence
from functools import cache
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mtplx.engine import acceptance
from mtplx.engine.acceptance import (
    acceptance_probability,
    residual,
    speculative_output_marginal,
    verify_one_token,
    walk_block,
    walk_coupled,
    walk_greedy,
    walk_rejection,
)
from mtplx.engine.randomness import Noise, RandomKey
from mtplx.engine.sampling import draw_coupled
from mtplx.engine.types import Distribution, Draft, Verdict
from tests.engine.enumeration import (
    Model,
    Walk,
    drafts,
    gumbel,
    largest_error,
    mean_accepted,
    output_law,
    run_law,
)

VOCAB = 3


probabilities = st.lists(st.floats(0.0, 1.0), min_size=VOCAB, max_size=VOCAB).filter(lambda ps: sum(ps) > 1e-3)


def normalised(weights: list[float]) -> Distribution:
    return np.array(weights) / sum(weights)


def table(seed: int, zeros: float = 0.0) -> Model:
    """A random model; each probability is 0 with chance `zeros`."""

    @cache
    def distribution(context: tuple[int, ...]) -> Distribution:
        random = np.random.default_rng([seed, len(context), *context])
        weights = random.random(VOCAB) * (random.random(VOCAB) >= zeros)
        if not weights.any():
            weights[random.integers(VOCAB)] = 1.0
        return weights / weights.sum()

    return distribution


def one_hot(seed: int) -> Model:
    return lambda context: np.eye(VOCAB)[np.random.default_rng([seed, *context]).integers(VOCAB)]


def only(tokens: Sequence[int]) -> Model:
    """Equal mass on `tokens`, none elsewhere."""
    return lambda context: np.isin(np.arange(VOCAB), tokens) / len(tokens)


def top_cut(model: Model) -> Model:
    """The model without its least likely token, as a cut by top-p leaves it."""

    def cut(context: tuple[int, ...]) -> Distribution:
        p = model(context)
        kept = np.where(p > p.min(), p, 0.0)
        return kept / kept.sum()

    return cut


CASES = {
    "unrelated": (table(11), table(12)),
    "the same": (table(1), table(1)),
    "disjoint": (only([0, 1]), only([2])),
    "target cut by top-p": (top_cut(table(3)), table(4)),
    "both cut": (top_cut(table(3)), top_cut(table(4))),
    "zeros on both sides": (table(5, zeros=0.4), table(6, zeros=0.4)),
    "target certain": (one_hot(7), table(8)),
    "draft certain": (table(9), one_hot(10)),
}


RULES = pytest.mark.parametrize("walk", [walk_rejection, walk_block])
ROUNDING = 1e-9


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES)
@RULES
def test_output_has_the_law_of_plain_decoding(walk: Walk, case: str, depth: int) -> None:
    target, drafter = CASES[case]
    assert largest_error(output_law(walk, target, drafter, depth), target) < ROUNDING


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@RULES
def test_a_draft_without_distributions_counts_as_one_hot(walk: Walk, depth: int) -> None:
    target, drafter = table(9), one_hot(10)
    assert largest_error(output_law(walk, target, drafter, depth, as_one_hot=True), target) < ROUNDING


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.floats(0.0, 0.9), st.floats(0.0, 0.9))
@RULES
def test_output_has_the_law_of_plain_decoding_for_any_models(
    walk: Walk, target_seed: int, drafter_seed: int, target_zeros: float, drafter_zeros: float
) -> None:
    target, drafter = table(target_seed, target_zeros), table(drafter_seed, drafter_zeros)
    assert largest_error(output_law(walk, target, drafter, 2), target) < ROUNDING


@settings(max_examples=30)
@given(st.lists(probabilities, min_size=8, max_size=8))
@RULES
def test_output_has_the_law_of_plain_decoding_for_any_probabilities(walk: Walk, rows: list[list[float]]) -> None:
    """The next distribution follows from the last token: four rows each for target and drafter."""

    def after_last(rows: list[list[float]]) -> Model:
        laws = [normalised(row) for row in rows]
        return lambda context: laws[1 + context[-1] if context else 0]

    target, drafter = after_last(rows[:4]), after_last(rows[4:])
    assert largest_error(output_law(walk, target, drafter, 2), target) < ROUNDING


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_blocks_accept_no_less_than_rejection(case: str, depth: int) -> None:
    target, drafter = CASES[case]
    blocks, tokens = (mean_accepted(walk, target, drafter, depth) for walk in (walk_block, walk_rejection))
    if case == "unrelated" and depth > 1:
        assert blocks > tokens + 1e-3
    elif case == "draft certain" or depth == 1:
        assert blocks == pytest.approx(tokens)
    assert blocks > tokens - ROUNDING


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(1, 3))
def test_blocks_accept_no_less_than_rejection_for_any_models(target_seed: int, drafter_seed: int, depth: int) -> None:
    target, drafter = table(target_seed, 0.2), table(drafter_seed, 0.2)
    blocks, tokens = (mean_accepted(walk, target, drafter, depth) for walk in (walk_block, walk_rejection))
    assert blocks > tokens - ROUNDING


def test_by_blocks_a_one_hot_draft_fares_as_by_rejection() -> None:
    """With the distribution spelt out, too, each run has the same probability."""
    target, drafter = CASES["draft certain"]
    [(spelt_out, _)] = drafts(drafter, 3)
    by_rejection = run_law(walk_rejection, target, spelt_out)
    for draft in (spelt_out, Draft(spelt_out.tokens)):
        law = run_law(walk_block, target, draft)
        assert law.keys() == by_rejection.keys()
        assert law == pytest.approx(by_rejection)


def test_blocks_ask_for_nothing_after_a_token_that_cannot_be() -> None:
    asked: list[int] = []

    def target(position: int) -> Distribution:
        asked.append(position)
        return np.array([0.5, 0.5, 0.0])

    q = np.full(3, 1 / 3)
    walk_block(target, Draft((0, 2, 1, 0), [q] * 4), accept=lambda i: 0.0, emit=lambda i: 0.0)
    assert asked == [0, 1]


def accepting_too_much(target, draft, accept, emit):
    """Wrong on purpose: accepts with the square root of p/q."""
    return walk_rejection(target, draft, lambda i: accept(i) ** 2, emit)


def without_residual(target, draft, accept, emit):
    """Wrong on purpose: a rejected token is replaced by one from p itself, not from what is left of it."""
    with mock.patch("mtplx.engine.acceptance.residual", lambda p, q, token: p):
        return walk_rejection(target, draft, accept, emit)


def blocks_passing_as_by_rejection(target, draft, accept, emit):
    """Wrong on purpose: a prefix passes with its weight, wherever it ends."""
    with mock.patch("mtplx.engine.acceptance._passing", lambda mass, weight: weight):
        return walk_block(target, draft, accept, emit)


def blocks_that_end_where_one_fails(target, draft, accept, emit):
    """Wrong on purpose: a prefix that fails takes the longer ones with it."""
    return walk_block(target, draft, lambda i: max(accept(j) for j in range(i + 1)), emit)


def blocks_with_the_residual_of_rejection(target, draft, accept, emit):
    """Wrong on purpose: what follows is drawn from norm(max(p - q, 0)), without the weight."""
    verdict = walk_block(target, draft, accept, emit)
    if verdict.num_accepted == len(draft):
        return verdict
    p, q = target(verdict.num_accepted), draft.distributions[verdict.num_accepted]
    drawn = acceptance.draw(residual(p, q, draft.tokens[verdict.num_accepted]), emit(verdict.num_accepted))
    return Verdict(verdict.num_accepted, drawn)


@pytest.mark.parametrize(
    "wrong",
    [
        accepting_too_much,
        without_residual,
        blocks_passing_as_by_rejection,
        blocks_that_end_where_one_fails,
        blocks_with_the_residual_of_rejection,
    ],
)
def test_enumeration_finds_a_wrong_rule(wrong: Walk) -> None:
    target, drafter = CASES["unrelated"]
    assert largest_error(output_law(wrong, target, drafter, 2), target) > 1e-3


@RULES
def test_a_draft_that_claims_the_wrong_distribution_is_found(walk: Walk) -> None:
    """q must be what the draft was drawn from."""
    target, drafter = CASES["unrelated"]
    lied = output_law(
        lambda t, d, accept, emit: walk(t, Draft(d.tokens, [np.full(VOCAB, 1 / VOCAB)] * 2), accept, emit),
        target,
        drafter,
        2,
    )
    assert largest_error(lied, target) > 1e-3


def noise_of(seed: int, num_positions: int) -> Noise:
    """The noise [position, V] of one text."""
    return np.random.default_rng(seed).random((num_positions, VOCAB))


@given(st.integers(0, 2**32), st.integers(0, 2**32), st.floats(0.0, 0.9))
def test_under_shared_noise_the_text_is_the_same_whatever_was_drafted(seed: int, model: int, zeros: float) -> None:
    """So output has the law of plain decoding, for argmax(log p + g) has the law p (Gumbel-max trick)."""
    target, noise = table(model, zeros), noise_of(seed, 4)

    def run(tokens: tuple[int, ...]) -> tuple[int, ...]:
        verdict = walk_coupled(lambda i: target(tokens[:i]), Draft(tokens), lambda i, size: noise[i, :size])
        return (*tokens[: verdict.num_accepted], verdict.token)

    plain: tuple[int, ...] = ()
    for position in range(4):
        plain += (int(np.argmax(np.log(np.maximum(target(plain), 1e-300)) + gumbel(noise[position]))),)
    assert run(plain[:3]) == plain
    for tokens in itertools.product(range(VOCAB), repeat=3):
        emitted = run(tokens)
        assert emitted == plain[: len(emitted)]
        common = next((i for i in range(3) if tokens[i] != plain[i]), 3)
        assert len(emitted) == common + 1


def test_shared_noise_draws_tokens_as_often_as_they_are_likely() -> None:
    """Would fail a right rule once in a million seeds."""
    p, num_draws = np.array([0.5, 0.3, 0.0, 0.15, 0.05]), 20_000
    drawn = [draw_coupled(p, RandomKey(3).noise(position, 5)) for position in range(num_draws)]
    counts = np.bincount(drawn, minlength=5)
    assert counts[2] == 0
    likely = p > 0.0
    assert stats.chisquare(counts[likely], num_draws * p[likely]).pvalue > 1e-6


def test_drafter_and_target_that_share_noise_mostly_agree() -> None:
    """They differ with a chance of at most 2 d / (1 + d), d the total variation distance (Daliri et al., theorem 3)."""
    p, q, num_draws = np.array([0.5, 0.3, 0.2]), np.array([0.45, 0.25, 0.3]), 5_000
    noise = [RandomKey(4).noise(position, 3) for position in range(num_draws)]
    agreed = np.mean([draw_coupled(p, numbers) == draw_coupled(q, numbers) for numbers in noise])
    bound = 1.0 - 2 * 0.1 / (1 + 0.1)
    assert agreed > bound - 5 * np.sqrt(bound * (1 - bound) / num_draws)  # five standard deviations
    assert bound > (p * q).sum() + 0.4  # so far above what independent draws would reach


@given(probabilities, probabilities)
def test_the_marginal_of_one_step_is_the_target(p: list[float], q: list[float]) -> None:
    np.testing.assert_allclose(speculative_output_marginal(p, q), normalised(p), atol=1e-12)


@given(probabilities, probabilities, st.integers(0, VOCAB - 1))
def test_the_residual_is_a_distribution_even_without_mass(p: list[float], q: list[float], token: int) -> None:
    for draft in (normalised(q), normalised(p), None):
        rest = residual(normalised(p), draft, token)
        assert rest.min() >= 0.0
        assert rest.sum() == pytest.approx(1.0)


@given(probabilities, probabilities)
def test_mean_acceptance_is_the_overlap(p: list[float], q: list[float]) -> None:
    """Σ q·min(1, p/q) = Σ min(p, q) = 1 − total variation distance."""
    drawn = normalised(q)
    mean = sum(drawn[token] * acceptance_probability(p, q, token) for token in np.flatnonzero(drawn))
    assert mean == pytest.approx(np.minimum(normalised(p), drawn).sum())


def test_greedy_accepts_the_common_prefix_and_asks_no_further() -> None:
    asked: list[int] = []

    def choose(position: int) -> int:
        asked.append(position)
        return [4, 5, 6][position]

    assert walk_greedy(choose, Draft((4, 9))) == Verdict(1, 5)
    assert asked == [0, 1]
    assert walk_greedy(choose, Draft((4, 5))) == Verdict(2, 6)
    assert walk_greedy(choose, Draft()) == Verdict(0, 4)


@RULES
def test_a_draft_whose_distribution_is_no_number_is_rejected_for_a_token_of_the_target(walk: Walk) -> None:
    q = np.array([0.5, np.nan, 0.5])
    for emit, token in [(0.2, 0), (0.6, 1), (0.9, 2)]:
        verdict = walk(
            lambda i: np.array([0.5, 0.25, 0.25]), Draft((1,), [q]), lambda i: 0.0, lambda i, emit=emit: emit
        )
        assert verdict == Verdict(0, token)


@RULES
def test_what_came_before_a_distribution_that_is_no_number_stays_accepted(walk: Walk) -> None:
    p = np.array([0.5, 0.25, 0.25])
    draft = Draft((0, 1), [p, np.full(3, np.nan)])
    assert walk(lambda i: p, draft, lambda i: 0.9, lambda i: 0.6) == Verdict(1, 1)


def test_verifying_one_token_follows_the_generator() -> None:
    class Fixed(np.random.Generator):
        def __init__(self, *numbers: float) -> None:
            super().__init__(np.random.Philox(0))
            self._numbers = iter(numbers)

        def random(self) -> float:
            return next(self._numbers)

    p, q = [0.25, 0.75], [0.5, 0.5]
    accepted = verify_one_token(p, q, 0, Fixed(0.49))
    assert (accepted.accepted, accepted.token_id, accepted.accept_probability) == (True, 0, 0.5)
    replaced = verify_one_token(p, q, 0, Fixed(0.51, 0.3))
    assert (replaced.accepted, replaced.token_id) == (False, 1)


@pytest.mark.parametrize("bad", [[0.0, 0.0], [0.5, float("nan")], [-0.1, 1.1], [[0.5, 0.5]]])
def test_what_is_no_distribution_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="probabilities must"):
        acceptance_probability(bad, [0.5, 0.5], 0)
