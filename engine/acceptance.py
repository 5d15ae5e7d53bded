"""Which draft tokens become output. Pure functions: distributions in, verdicts out; no model, no logits.

`rejection` is speculative sampling (Leviathan et al., 2211.17192; Chen et al., 2302.01318). Its output has the
target's law whatever the draft. A draft distribution of None is one-hot on the drafted token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtplx.engine.sampling import as_distribution, draw
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


def residual(p: Distribution, q: Distribution | None, token: int) -> Distribution:
    """norm(max(p - q, 0)) [V], what replaces a rejected `token`.

    Where no mass is left p equals q, a rejection has probability 0, and rounding alone can ask: the answer is p.
    """
    if q is None:
        rest = p.copy()
        rest[token] = 0.0
    else:
        rest = np.maximum(p - q, 0.0)
    mass = rest.sum()
    return rest / mass if mass > 0.0 else p


def _ratio(p: Distribution, q: Distribution | None, token: int) -> float:
    """min(1, p/q) at `token`; p itself for a one-hot draft.

    Where q is 0 no draft can come from, and the answer is the limit: 1, or 0 where p is 0 too. A q that is not a
    number accepts nothing.
    """
    drawn = 1.0 if q is None else float(q[token])
    if drawn == 0.0:
        return 1.0 if p[token] > 0.0 else 0.0
    ratio = float(p[token]) / drawn
    return min(1.0, ratio) if ratio >= 0.0 else 0.0


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
