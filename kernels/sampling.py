"""From a row of logits to the few tokens that can be drawn, and the acceptance of drafts on such distributions.

Numpy in, numpy out. The functions without a prefix are native where that is possible, and else the references, which
define them. Knows neither penalties nor random numbers; those come in as logits and as uniforms in [0, 1).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtplx.kernels.native_module import is_available, native

Logits = npt.NDArray[np.float32]  # [V]
Tokens = npt.NDArray[np.int32]  # [n], rising
Probabilities = npt.NDArray[np.float64]  # [n], above 0, summing to 1


_COLDEST = 1e-30  # below, the reciprocal may overflow; all but the likeliest tokens have long been of weight 0


@dataclass(frozen=True)
class SparseDistribution:
    """The tokens that can be drawn, and their probabilities."""

    tokens: Tokens
    probabilities: Probabilities


def one_hot(token: int) -> SparseDistribution:
    """What a draft without distributions was drawn from."""
    return SparseDistribution(np.array([token], dtype=np.int32), np.ones(1))


def greedy(logits: Logits) -> tuple[int, bool]:
    """The most likely token, the lowest among equals, and whether all logits are finite."""
    if not is_available():
        return reference_greedy(logits)
    return native.greedy(_as_row(logits))


def reference_greedy(logits: Logits) -> tuple[int, bool]:
    all_finite = bool(np.isfinite(logits).all())
    return int(np.argmax(logits if all_finite else np.where(np.isnan(logits), -np.inf, logits))), all_finite


def whole_distribution(logits: Logits, temperature: float) -> Probabilities:
    """The probabilities [V] of all tokens at a temperature above 0, where nothing is cut; 0 is among them.

    Raises ValueError for NaN and when the highest logit is not finite.
    """
    temperature = max(temperature, _COLDEST)
    if not is_available():
        return reference_whole_distribution(logits, temperature)
    return native.whole_distribution(_as_row(logits), temperature)


def reference_whole_distribution(logits: Logits, temperature: float) -> Probabilities:
    weights = _weights(logits, temperature)
    return np.asarray(weights / weights.sum())


def cut_distribution(
    logits: Logits, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> SparseDistribution:
    """What is left of logits [V] after temperature, min-p, top-k and top-p, each on what the one before left.

    Among equals lower tokens stay first. temperature must be above 0; top_k 0, top_p 1 and min_p 0 cut nothing. A logit
    of -inf can never be drawn, nor need one be whose weight is below e^-700 of the highest. Raises ValueError for NaN
    and when the highest logit is not finite.
    """
    temperature = max(temperature, _COLDEST)
    if not is_available():
        return reference_cut_distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    return SparseDistribution(*native.cut_distribution(_as_row(logits), temperature, top_k, top_p, min_p))


def reference_cut_distribution(
    logits: Logits, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> SparseDistribution:
    weights = _weights(logits, temperature)
    order = np.argsort(-weights, kind="stable")
    order = order[(weights[order] > 0.0) & (weights[order] >= min_p)]
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1.0:
        cumulative = np.cumsum(weights[order])
        order = order[: int(np.searchsorted(cumulative, top_p * cumulative[-1])) + 1]
    tokens = np.sort(order)
    return SparseDistribution(tokens.astype(np.int32), weights[tokens] / weights[tokens].sum())


def probability_of(p: SparseDistribution, token: int) -> float:
    """The probability of `token`, 0 if it cannot be drawn."""
    if not is_available():
        return reference_probability_of(p, token)
    return native.probability_of(p.tokens, p.probabilities, token)


def reference_probability_of(p: SparseDistribution, token: int) -> float:
    return float(p.probabilities[p.tokens == token].sum())


def draw(p: SparseDistribution, uniform: float) -> int:
    """The token at `uniform` in [0, 1) of the cumulative distribution."""
    if not is_available():
        return reference_draw(p, uniform)
    return native.draw(p.tokens, p.probabilities, uniform)


def reference_draw(p: SparseDistribution, uniform: float) -> int:
    cumulative = np.cumsum(p.probabilities)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return int(p.tokens[min(index, len(p.tokens) - 1)])


def residual(p: SparseDistribution, q: SparseDistribution) -> SparseDistribution:
    """norm(max(p - q, 0)), what replaces a token drawn from q and rejected. p where no mass is left."""
    if not is_available():
        return reference_residual(p, q)
    return SparseDistribution(*native.residual(p.tokens, p.probabilities, q.tokens, q.probabilities))


def reference_residual(p: SparseDistribution, q: SparseDistribution) -> SparseDistribution:
    rest = p.probabilities.copy()
    _, in_p, in_q = np.intersect1d(p.tokens, q.tokens, assume_unique=True, return_indices=True)
    rest[in_p] -= q.probabilities[in_q]
    left = rest > 0.0
    return SparseDistribution(p.tokens[left], rest[left] / rest[left].sum()) if left.any() else p


def acceptance_probability(p: SparseDistribution, q: SparseDistribution, token: int) -> float:
    """min(1, p/q) at `token` (Leviathan et al., 2211.17192); a token that q cannot draw is judged by p alone."""
    target, drawn = probability_of(p, token), probability_of(q, token)
    if drawn == 0.0:
        return 1.0 if target > 0.0 else 0.0
    return min(1.0, target / drawn)


def accept_or_replace(
    p: SparseDistribution, q: SparseDistribution, token: int, accept: float, emit: float
) -> tuple[bool, int]:
    """Whether `token`, drawn from q, stays, and the token that is emitted: distributed as p says.

    `accept` and `emit` are independent uniforms in [0, 1).
    """
    if accept < acceptance_probability(p, q, token):
        return True, token
    return False, draw(residual(p, q), emit)


def _weights(logits: Logits, temperature: float) -> Probabilities:
    """Of all tokens [V], 1 the greatest."""
    scores = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(scores.max()):  # NaN where there is one
        raise ValueError("the logits have no finite maximum")
    with np.errstate(over="ignore"):  # at a tiny temperature all but the likeliest fall to -inf, which has weight 0
        return np.asarray(np.exp((scores - scores.max()) / temperature))


def _as_row(logits: Logits) -> Logits:
    return np.ascontiguousarray(logits, dtype=np.float32)
