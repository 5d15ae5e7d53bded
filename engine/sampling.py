"""From logits to the distribution a token is drawn from, and drawing it.

Pure functions over one row. Knows nothing of drafts: the same functions make the target's distributions and the
drafters'. Order of the steps: repetition penalty, frequency and presence penalty, bias, grammar, no end too early; then
temperature, min-p, top-k, top-p, each on what the one before left, as vLLM applies them. All arithmetic is in float64;
between the two halves, scores are kept as float32.

What needs kernels imports them when called: they bring in MLX, and this module is public without.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from mtplx.engine.errors import EngineError, NonFiniteLogitsError
from mtplx.engine.randomness import Noise
from mtplx.engine.types import Distribution, Grammar, Logits, SamplingParams
from mtplx.engine.vocabulary_part import PartOfVocabulary, places_of

_BLOCK = 256  # tokens

Scores = Logits  # [V] after penalties and bias, or [N] of a part of the vocabulary


class TokenHistory:
    """The tokens of one sequence as penalties and grammar see them.

    None of `ends` may be among the first `min_tokens` of the output.
    """

    def __init__(
        self,
        prompt: Iterable[int] = (),
        grammar: Grammar | None = None,
        ends: AbstractSet[int] = frozenset(),
        min_tokens: int = 0,
    ) -> None:
        self._seen = set(prompt)
        self._output_counts: Counter[int] = Counter()
        self.grammar = grammar
        self.ends = ends
        self.num_missing = min_tokens  # tokens of output before which there must be no end

    @property
    def may_end(self) -> bool:
        return self.num_missing <= 0 or not self.ends

    @property
    def seen(self) -> AbstractSet[int]:
        """The tokens of prompt and output."""
        return self._seen

    @property
    def output_counts(self) -> Mapping[int, int]:
        """How often each token is in the output."""
        return self._output_counts

    def push(self, token: int) -> None:
        """Count `token` as output."""
        self._count(token)
        self.num_missing -= 1
        if self.grammar is not None:
            self.grammar = self.grammar.after(token)

    def ahead(self) -> "TokenHistory":
        """This history, to push draft tokens on that may never become output. This one must stay as it is meanwhile."""
        return _Lookahead(self)

    def _count(self, token: int) -> None:
        self._seen.add(token)
        self._output_counts[token] += 1


class _Lookahead(TokenHistory):
    """A history and some tokens more, which are counted only if a penalty asks."""

    def __init__(self, base: TokenHistory) -> None:  # without its base's __init__, for there is one in every round
        self.grammar, self.ends, self.num_missing = base.grammar, base.ends, base.num_missing
        self._base = base
        self._more: list[int] = []

    @property
    def seen(self) -> AbstractSet[int]:
        return self._base.seen | set(self._more)

    @property
    def output_counts(self) -> Mapping[int, int]:
        counts = Counter(self._base.output_counts)
        counts.update(self._more)
        return counts

    def _count(self, token: int) -> None:
        self._more.append(token)


def check_finite(logits: Logits, num_output: int) -> int:
    """The most likely token by `logits` [V], given after `num_output` tokens, which one look at them tells as well.

    Raises NonFiniteLogitsError unless all are finite.
    """
    from mtplx.kernels.sampling import greedy

    token, all_finite = greedy(logits)
    if not all_finite:
        raise NonFiniteLogitsError(f"the model gave logits that are not finite after {num_output} tokens")
    return token


def adjust(
    logits: Logits, params: SamplingParams, history: TokenHistory, part: PartOfVocabulary | None = None
) -> Scores:
    """Logits [V] after penalties, bias and grammar, which leaves -inf where it forbids; so does an end too early. Or of
    logits [N] of a part of the vocabulary.

    Repetition penalty over prompt and output (Keskar et al., 1909.05858); presence and frequency penalty over the
    output, as OpenAI defines them. Where a grammar allows nothing but an end, no end is too early. Gives the logits
    themselves where nothing changes them. Raises EngineError when the grammar forbids every token.
    """
    if history.grammar is None and history.may_end and not params.changes_logits:
        return logits
    scores = np.array(logits, dtype=np.float32)
    if params.repetition_penalty != 1.0:
        seen, _ = places_of(history.seen, part)
        values = scores[seen].astype(np.float64)
        scores[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        output_counts = history.output_counts
        said, are_there = places_of(output_counts.keys(), part)
        counts = np.fromiter(output_counts.values(), dtype=np.float64)[are_there]
        scores[said] -= params.presence_penalty + params.frequency_penalty * counts
    if params.logit_bias:
        tokens, biases = params.biases
        biased, are_there = places_of(tokens, part)
        scores[biased] += biases[are_there]
    if history.grammar is not None:
        allowed = history.grammar.allowed()
        if not allowed.any():
            raise EngineError("the grammar allows no token to follow")
        scores[~(allowed if part is None else allowed[part.ids])] = -np.inf
    return scores if history.may_end else _without(history.ends, scores, part)


def _without(ends: AbstractSet[int], scores: Scores, part: PartOfVocabulary | None) -> Scores:
    """The scores with -inf for the ends, unless there is nothing else."""
    rest = scores.copy()
    places, _ = places_of(ends, part)
    rest[places[places < len(scores)]] = -np.inf
    return rest if rest.max() > -np.inf else scores


def greedy_choice(logits: Logits, params: SamplingParams, history: TokenHistory, num_output: int) -> int:
    """The most likely token by logits [V], given after `num_output` tokens, once `adjust` has changed them.

    Raises as `check_finite` and `adjust`.
    """
    token = check_finite(logits, num_output)
    if history.grammar is None and history.may_end and not params.has_penalty:
        if not params.logit_bias:
            return token
        # Where no biased token is first or becomes it, there is no need to write all scores anew.
        tokens, biases = params.biases
        if token not in params.logit_bias and (logits[tokens] + biases).astype(np.float32).max() < logits[token]:
            return token
    return most_likely(adjust(logits, params, history))


def most_likely(scores: Scores) -> int:
    """The greedy token: the lowest id among the highest scores."""
    from mtplx.kernels.sampling import greedy

    token, _ = greedy(scores)
    return token


def distribution(scores: Scores, params: SamplingParams) -> Distribution:
    """The distribution [V] that a token is drawn from at a temperature above 0."""
    from mtplx.kernels.sampling import cut_distribution, whole_distribution

    if not params.top_k and params.top_p >= 1.0 and not params.min_p:
        return whole_distribution(scores, params.temperature)
    kept = cut_distribution(
        scores,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
    )
    if len(kept.tokens) == len(scores):
        return kept.probabilities
    probabilities = np.zeros(len(scores))
    probabilities[kept.tokens] = kept.probabilities
    return probabilities


def draw(probabilities: Distribution, uniform: float) -> int:
    """The token at `uniform` in [0, 1) of the cumulative distribution; never one of probability 0."""
    # Summed by blocks, of which one is looked into: running sums over a whole vocabulary take several times as long.
    starts = np.arange(0, len(probabilities), _BLOCK)
    masses = np.add.reduceat(probabilities, starts)
    cumulative = np.cumsum(masses)
    point = uniform * cumulative[-1]
    block = min(int(np.searchsorted(cumulative, point, side="right")), int(np.flatnonzero(masses)[-1]))
    start = int(starts[block])
    inside = probabilities[start : start + _BLOCK]
    sums = np.cumsum(inside) + (cumulative[block - 1] if block else 0.0)
    return start + min(int(np.searchsorted(sums, point, side="right")), int(np.flatnonzero(inside)[-1]))


def draw_coupled(probabilities: Distribution, noise: Noise) -> int:
    """A draw from `probabilities` [V] that `noise` [V] decides, independent uniform numbers u of [0, 1).

    It is argmax(p / −log u), the lowest id among equals: the Gumbel-max trick as a race of exponential numbers. Given
    the same numbers, two distributions that are alike mostly give the same token (Daliri et al., 2408.07978).
    """
    noise = np.maximum(noise, 2.0**-54)  # 0 has no logarithm
    bounds = probabilities / (1.0 - noise)  # no less than what counts, and quicker to come by
    best = int(np.argmax(bounds))
    least = -probabilities[best] / np.log(noise[best])
    rivals = np.flatnonzero(bounds >= least * (1.0 - 1e-9))
    return int(rivals[np.argmax(-probabilities[rivals] / np.log(noise[rivals]))])


def sample_from_distribution(probs: Any, rng: np.random.Generator | None = None) -> int:
    """Draw a token from probabilities [V], a numpy or MLX array; they need not sum to exactly 1.

    Raises ValueError for probabilities that are negative, not finite, or all 0.
    """
    rng = rng or np.random.default_rng()
    return draw(as_distribution(probs), rng.random())


def as_distribution(probs: Any) -> Distribution:
    """Probabilities [V] from a numpy or MLX array, checked and normalised in float64."""
    # By way of Python's numbers, since numpy lacks bfloat16 and so cannot take such arrays of MLX.
    array = np.array(probs.tolist() if hasattr(probs, "tolist") else probs, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"probabilities must have one dimension, not {array.ndim}")
    total = array.sum()
    if not np.isfinite(total) or total <= 0.0 or array.min() < 0.0:
        raise ValueError("probabilities must be finite, not negative, and not all 0")
    probabilities: Distribution = array / total
    return probabilities
