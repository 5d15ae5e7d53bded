"""How likely drafts survive, learnt from those that did and did not. Knows positions; knows no token, no drafter."""

from collections.abc import Sequence

_PRIOR_WEIGHT = 4.0  # trials that an expectation counts for
_LOWEST, _HIGHEST = 0.01, 0.99  # an expectation is never certain


class SurvivalRecord:
    """For each draft position, how often a token there survived when those before it had: a decayed average.

    `memory` is how many of the latest trials count, about.
    """

    def __init__(self, memory: float) -> None:
        self._keep = 1.0 - 1.0 / memory
        self._survived: list[float] = []
        self._tried: list[float] = []

    def observe(self, position: int, survived: bool) -> None:
        """What became of a token at `position`, all before it having survived."""
        while len(self._tried) <= position:
            self._tried.append(0.0)
            self._survived.append(0.0)
        self._tried[position] = self._keep * self._tried[position] + 1.0
        self._survived[position] = self._keep * self._survived[position] + survived

    def rate(self, position: int, expected: float) -> float:
        """The share that survives at `position`, by trials and by what is `expected` where there are few."""
        if position >= len(self._tried):
            return expected
        return (self._survived[position] + _PRIOR_WEIGHT * expected) / (self._tried[position] + _PRIOR_WEIGHT)

    def counts(self, position: int) -> tuple[float, float]:
        """How many survived at `position`, and how many were tried, the decayed counts."""
        return (self._survived[position], self._tried[position]) if position < len(self._tried) else (0.0, 0.0)


def survival(own: SurvivalRecord, usual: SurvivalRecord, guess: float, depth: int, negligible: float) -> list[float]:
    """The probability that a draft survives up to each of `depth` positions; ends where it is `negligible`.

    What a text's `own` drafts did counts first; where there are few, what is `usual` for drafts of this sort, moved by
    as much as this text differed at the position before; where that is unknown too, the position before, or `guess`.
    """
    shares: list[float] = []
    share, expected, difference = 1.0, guess, 0.0
    for position in range(depth):
        expected = usual.rate(position, expected)
        rate = own.rate(position, min(max(expected + difference, _LOWEST), _HIGHEST))
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
