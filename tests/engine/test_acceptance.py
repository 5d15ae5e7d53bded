"""Acceptance keeps the target's law: by enumeration of every draft, by algebra, and against rules that are wrong."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.acceptance import (
    acceptance_probability,
    residual,
    speculative_output_marginal,
    verify_one_token,
    walk_greedy,
    walk_rejection,
)
from mtplx.engine.types import Distribution, Draft, Verdict

Walk = Callable[..., Verdict]
Model = Callable[[tuple[int, ...]], Distribution]  # context to the next token's distribution
Law = dict[tuple[int, ...], float]

VOCAB = 3
ALMOST_ONE = 1.0 - 2.0**-53


def table(seed: int, zeros: float = 0.0) -> Model:
    """A random model; each probability is 0 with chance `zeros`."""

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


def threshold(accepts: Callable[[float], bool]) -> float:
    """The measure of the numbers in [0, 1) for which a rule says yes; it says yes below some point, then no."""
    low, high = 0.0, 1.0
    if not accepts(0.0):
        return 0.0
    if accepts(ALMOST_ONE):
        return 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low


def emission_law(emitted: Callable[[float], int]) -> dict[int, float]:
    """Measure of the numbers in [0, 1) that emit each token; tokens come in rising order."""
    up_to = [threshold(lambda u, token=token: emitted(u) <= token) for token in range(VOCAB)]
    return {token: up_to[token] - (up_to[token - 1] if token else 0.0) for token in range(VOCAB)}


def run_law(walk: Walk, target: Model, draft: Draft) -> Law:
    """The exact law of the run that `walk` makes of one draft, found by where its random numbers change the outcome."""

    def outcome(num_accepting: int, at: float, emit: float = 0.5) -> Verdict:
        return walk(
            lambda i: target(draft.tokens[:i]),
            draft,
            accept=lambda i: 0.0 if i < num_accepting else at,
            emit=lambda i: emit,
        )

    law: Law = {}
    reached = 1.0
    for position in range(len(draft) + 1):
        rejecting = ALMOST_ONE if position < len(draft) else 0.0
        go_on = 0.0
        if position < len(draft):
            go_on = threshold(lambda u, i=position: outcome(i, u).num_accepted > i)
        stopping = reached * (1.0 - go_on)
        if stopping > 0.0:
            emission = emission_law(lambda u, i=position, at=rejecting: outcome(i, at, u).token)
            for token, probability in emission.items():
                run = (*draft.tokens[:position], token)
                law[run] = law.get(run, 0.0) + stopping * probability
        reached *= go_on
        if reached == 0.0:
            break
    return law


def output_law(walk: Walk, target: Model, drafter: Model, depth: int, *, as_one_hot: bool = False) -> Law:
    """The law of the next depth + 1 tokens: a round, then plain decoding to the full length."""
    law = dict.fromkeys(itertools.product(range(VOCAB), repeat=depth + 1), 0.0)
    for tokens in itertools.product(range(VOCAB), repeat=depth):
        distributions = [drafter(tokens[:i]) for i in range(depth)]
        drawn = float(np.prod([q[token] for q, token in zip(distributions, tokens, strict=True)]))
        if drawn == 0.0:
            continue
        draft = Draft(tokens, None if as_one_hot else distributions)
        for run, probability in run_law(walk, target, draft).items():
            for rest in itertools.product(range(VOCAB), repeat=depth + 1 - len(run)):
                law[run + rest] += drawn * probability * plain_probability(target, run + rest, start=len(run))
    return law


def plain_probability(target: Model, tokens: tuple[int, ...], start: int = 0) -> float:
    return float(np.prod([target(tokens[:i])[tokens[i]] for i in range(start, len(tokens))]))


def largest_error(law: Law, target: Model) -> float:
    return max(abs(probability - plain_probability(target, tokens)) for tokens, probability in law.items())


CASES = {
    "unrelated": (table(1), table(2)),
    "the same": (table(1), table(1)),
    "disjoint": (only([0, 1]), only([2])),
    "target cut by top-p": (top_cut(table(3)), table(4)),
    "both cut": (top_cut(table(3)), top_cut(table(4))),
    "zeros on both sides": (table(5, zeros=0.4), table(6, zeros=0.4)),
    "target certain": (one_hot(7), table(8)),
    "draft certain": (table(9), one_hot(10)),
}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_rejection_has_the_law_of_plain_decoding(case: str, depth: int) -> None:
    target, drafter = CASES[case]
    assert largest_error(output_law(walk_rejection, target, drafter, depth), target) < 1e-9


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_draft_without_distributions_counts_as_one_hot(depth: int) -> None:
    target, drafter = table(9), one_hot(10)
    assert largest_error(output_law(walk_rejection, target, drafter, depth, as_one_hot=True), target) < 1e-9


def accepting_too_much(target, draft, accept, emit):
    """Wrong on purpose: accepts with the square root of p/q."""
    return walk_rejection(target, draft, lambda i: accept(i) ** 2, emit)


def without_residual(target, draft, accept, emit):
    """Wrong on purpose: a rejected token is replaced by one from p itself, not from what is left of it."""
    verdict = walk_rejection(target, draft, accept, emit)
    p = target(verdict.num_accepted)
    return Verdict(verdict.num_accepted, int(np.searchsorted(np.cumsum(p), emit(verdict.num_accepted), side="right")))


@pytest.mark.parametrize("wrong", [accepting_too_much, without_residual])
def test_enumeration_finds_a_wrong_rule(wrong: Walk) -> None:
    target, drafter = CASES["unrelated"]
    assert largest_error(output_law(wrong, target, drafter, 2), target) > 1e-3


def test_a_one_hot_draft_that_claims_the_wrong_distribution_is_found() -> None:
    """q must be what the draft was drawn from: sampled tokens passed off as certain change the law."""
    target, drafter = CASES["unrelated"]
    assert largest_error(output_law(walk_rejection, target, drafter, 2, as_one_hot=True), target) < 1e-9
    lied = output_law(
        lambda t, d, accept, emit: walk_rejection(t, Draft(d.tokens, [np.full(VOCAB, 1 / VOCAB)] * 2), accept, emit),
        target,
        drafter,
        2,
    )
    assert largest_error(lied, target) > 1e-3


probabilities = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda ps: sum(ps) > 1e-3)


def normalised(weights: list[float]) -> Distribution:
    return np.array(weights) / sum(weights)


@given(probabilities, probabilities)
def test_the_marginal_of_one_step_is_the_target(p: list[float], q: list[float]) -> None:
    np.testing.assert_allclose(speculative_output_marginal(p, q), normalised(p), atol=1e-12)


@given(probabilities, probabilities, st.integers(0, 3))
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


def test_a_draft_whose_distribution_is_no_number_is_rejected_for_a_token_of_the_target() -> None:
    q = np.array([0.5, np.nan, 0.5])
    for emit, token in [(0.2, 0), (0.6, 1), (0.9, 2)]:
        verdict = walk_rejection(
            lambda i: np.array([0.5, 0.25, 0.25]), Draft((1,), [q]), lambda i: 0.0, lambda i, emit=emit: emit
        )
        assert verdict == Verdict(0, token)


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
