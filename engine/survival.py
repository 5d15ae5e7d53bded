"""How likely drafts survive, learnt from those that did and did not. Knows positions; knows no token, no drafter."""

from collections.abc import Sequence
from dataclasses import dataclass

_PRIOR_WEIGHT = 4.0  # trials that an expectation counts for
_PROMISE_WEIGHT = 32.0  # trials that a promise counts for
_LOWEST, _HIGHEST = 0.01, 0.99  # an expectation is never certain


@dataclass(frozen=True)
class Promise:
    """How often first tokens of drafts survived where somebody measured it, on texts of their own."""

    greedy: float
    sampled: float


class SurvivalRecord:
    """For each draft position, how often a token there survived when those before it had: a decayed average.

    `memory` is how many of the latest trials count, about; `promised` is what was said beforehand of the first
    position.
    """

    def __init__(self, memory: float, promised: float | None = None) -> None:
        self.promised = promised
        self._keep = 1.0 - 1.0 / memory
        self._counts: list[tuple[float, float]] = []  # survived, tried

    def observe(self, position: int, survived: bool) -> None:
        """What became of a token at `position`, all before it having survived."""
        while len(self._counts) <= position:
            self._counts.append((0.0, 0.0))
        num_survived, num_tried = self._counts[position]
        self._counts[position] = self._keep * num_survived + survived, self._keep * num_tried + 1.0

    def counts(self, position: int) -> tuple[float, float]:
        """How many survived at `position`, and how many were tried, the decayed counts."""
        return self._counts[position] if position < len(self._counts) else (0.0, 0.0)


def survival(
    own: SurvivalRecord,
    usual: SurvivalRecord,
    guess: float,
    depth: int,
    negligible: float,
    usual_weight: float = _PRIOR_WEIGHT,
) -> list[float]:
    """The probability that a draft survives up to each of `depth` positions; ends where it is `negligible`.

    What a text's `own` drafts did counts first; where there are few, what is `usual` for drafts of this sort, moved by
    as much as this text differed at the position before; where that is unknown too, the position before, or what was
    promised, or `guess`. `usual_weight` is how many trials of its own make a text's drafts count for as much as what is
    usual: the fewer, the more texts differ.
    """
    shares: list[float] = []
    share, difference = 1.0, 0.0
    expected, weight = (guess, _PRIOR_WEIGHT) if usual.promised is None else (usual.promised, _PROMISE_WEIGHT)
    for position in range(depth):
        survived, tried = usual.counts(position)
        expected = (survived + weight * expected) / (tried + weight)
        weight = _PRIOR_WEIGHT
        rate = expected + difference
        rate = _LOWEST if rate < _LOWEST else _HIGHEST if rate > _HIGHEST else rate
        survived, tried = own.counts(position)
        rate = (survived + usual_weight * rate) / (tried + usual_weight)
        difference = rate - expected
        share *= rate
        if share < negligible:
            break
        shares.append(share)
    return shares


def pooled_survival(records: Sequence[SurvivalRecord], depth: int) -> tuple[float, ...]:
    """The share of drafts of several sorts that survived up to each of `depth` positions, as far as any was tried."""
    shares: list[float] = []
    share = 1.0
    for position in range(depth):
        counts = [record.counts(position) for record in records]
        tried = sum(tried for _, tried in counts)
        if not tried:
            break
        share *= sum(survived for survived, _ in counts) / tried
        shares.append(share)
    return tuple(shares)
