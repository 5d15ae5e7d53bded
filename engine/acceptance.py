"""Which draft tokens become output. Pure functions: distributions in, verdicts out; no model, no logits.

Output has the target's law whatever the draft, by each of three rules: `rejection`, which is speculative sampling
(Leviathan et al., 2211.17192; Chen et al., 2302.01318), `block` (Sun et al., 2403.10444) and `coupled` (Daliri et al.,
2408.07978). A draft distribution of None is one-hot on the drafted token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtplx.engine.randomness import Noise
from mtplx.engine.sampling import as_distribution, draw, draw_coupled
from mtplx.engine.types import Distribution, Draft, Verdict

Uniform = Callable[[int], float]  # a number in [0, 1) for the draft position given
Target = Callable[[int], Distribution]  # p [V] after the draft tokens before the position given


@dataclass(frozen=True)
class SpeculativeDecision:
    """What became of one drafted token: itself if accepted, else the token that replaces it."""

    accepted: bool
    token_id: int
    accept_probability: float


def walk_greedy(choose: Callable[[int], int], draft: Draft) -> Verdict:
    """Accept draft tokens as long as they are the target's own choice.

    `choose(i)` gives the target's token after i accepted draft tokens; it is asked in order, and only as far as
    needed.
    """
    for position, token in enumerate(draft.tokens):
        chosen = choose(position)
        if chosen != token:
            return Verdict(position, chosen)
    return Verdict(len(draft), choose(len(draft)))


def walk_rejection(target: Target, draft: Draft, accept: Uniform, emit: Uniform) -> Verdict:
    """Accept each draft token with probability min(1, p/q), else draw from norm(max(p - q, 0)) and stop.

    `target(i)` is asked in order, and only as far as needed. `accept` and `emit` must give independent numbers.
    """
    for position, token in enumerate(draft.tokens):
        p = target(position)
        q = None if draft.distributions is None else draft.distributions[position]
        if accept(position) >= _ratio(p, q, token):
            return Verdict(position, draw(residual(p, q, token), emit(position)))
    end = len(draft)
    return Verdict(end, draw(target(end), emit(end)))


def walk_block(target: Target, draft: Draft, accept: Uniform, emit: Uniform) -> Verdict:
    """Accept the longest prefix that passes, where each passes or fails as a whole (algorithm 2 of Sun et al.).

    The weight of a prefix is how likely it is to be kept at least: w_0 = 1, w_i = min(1, w_(i-1) p/q). It passes with
    probability m / (m + 1 - w), m the mass of max(w p - q, 0) at the position after it, or with w for the whole draft;
    what follows the longest that passes is drawn from that rest, or from p. Expects to accept at least as much as
    `walk_rejection`, and exactly as much of a one-hot draft, for which the laws are equal and it asks for less.

    `target(i)` is asked in order, and no further than the weights stay above 0. `accept(i)`, which decides on the
    prefix that ends with draft token i, and `emit` must give independent numbers.
    """
    if not draft.distributions:
        return walk_rejection(target, draft, accept, emit)
    num_accepted, weight, rest = 0, 1.0, np.empty(0)
    for position, (token, q) in enumerate(zip(draft.tokens, draft.distributions, strict=True)):
        p = target(position)
        left = np.maximum(weight * p - q, 0.0)
        mass = float(left.sum())
        if position == 0 or accept(position - 1) < _passing(mass, weight):
            num_accepted, rest = position, left / mass if mass > 0.0 else p
        weight = _capped_ratio(weight * float(p[token]), float(q[token]))
        if weight == 0.0:
            break
    end = len(draft)
    if accept(end - 1) < weight:
        num_accepted, rest = end, target(end)
    return Verdict(num_accepted, draw(rest, emit(num_accepted)))


def walk_coupled(target: Target, draft: Draft, noise: Callable[[int, int], Noise]) -> Verdict:
    """Accept draft tokens as long as they are those that the noise chooses from p, which they change in no way.

    `noise(i, n)` gives the numbers of the tokens 0 … n − 1 at position i, independent of those at all others.
    `target(i)` is asked in order, and only as far as needed.
    """

    def choose(position: int) -> int:
        p = target(position)
        return draw_coupled(p, noise(position, len(p)))

    return walk_greedy(choose, draft)


def residual(p: Distribution, q: Distribution | None, token: int) -> Distribution:
    """norm(max(p - q, 0)) [V], what replaces a rejected `token`.

    Where no mass is left p equals q, a rejection has probability 0, and rounding alone can ask: the answer is p.
    """
    if q is None:
        rest = p.copy()
        rest[token] = 0.0
    else:
        rest = p - q
        np.maximum(rest, 0.0, out=rest)  # in place: fresh memory for a vocabulary takes longer than the arithmetic
    mass = rest.sum()
    if not mass > 0.0:  # nor for what is no number
        return p
    rest /= mass
    return rest


def _ratio(p: Distribution, q: Distribution | None, token: int) -> float:
    """min(1, p/q) at `token`; p itself for a one-hot draft."""
    return _capped_ratio(float(p[token]), 1.0 if q is None else float(q[token]))


def _capped_ratio(wanted: float, drawn: float) -> float:
    """min(1, wanted/drawn).

    A `drawn` of 0 no draft can come from, and the answer is the limit: 1, or 0 where `wanted` is 0 too. One that is
    not a number accepts nothing.
    """
    if drawn == 0.0:
        return 1.0 if wanted > 0.0 else 0.0
    ratio = wanted / drawn
    return min(1.0, ratio) if ratio >= 0.0 else 0.0


def _passing(mass: float, weight: float) -> float:
    """m / (m + 1 - w), the chance that a prefix of `weight` passes.

    With no mass left and a weight of 1, p equals q, and what comes after is accepted in any case: the answer is 1.
    """
    failing = 1.0 - weight
    return mass / (mass + failing) if mass > 0.0 else float(failing == 0.0)


# ---- the same for one token, on arrays of any kind: the public functions ------------------------------------------


def acceptance_probability(target_p: Any, draft_q: Any, token_id: int) -> float:
    """min(1, p/q) at `token_id`, for probabilities [V] as numpy or MLX arrays."""
    return _ratio(as_distribution(target_p), as_distribution(draft_q), token_id)


def verify_one_token(
    target_p: Any, draft_q: Any, draft_token: int, rng: np.random.Generator | None = None
) -> SpeculativeDecision:
    """Accept `draft_token`, drawn from `draft_q`, or replace it, so that the result is distributed as `target_p`.

    Takes probabilities [V] as numpy or MLX arrays.
    """
    rng = rng or np.random.default_rng()
    p, q = as_distribution(target_p), as_distribution(draft_q)
    probability = _ratio(p, q, draft_token)
    if rng.random() < probability:
        return SpeculativeDecision(True, draft_token, probability)
    return SpeculativeDecision(False, draw(residual(p, q, draft_token), rng.random()), probability)


def speculative_output_marginal(target_p: Any, draft_q: Any) -> Distribution:
    """The law [V] of the token that one step of speculative sampling emits, summed over all drafts.

    Takes probabilities [V] as numpy or MLX arrays. It equals `target_p`: the theorem, computed rather than assumed.
    """
    p, q = as_distribution(target_p), as_distribution(draft_q)
    marginal = np.zeros_like(p)
    for token in np.flatnonzero(q):
        probability = _ratio(p, q, int(token))
        marginal[token] += q[token] * probability
        marginal += q[token] * (1.0 - probability) * residual(p, q, int(token))
    return marginal
