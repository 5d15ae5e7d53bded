"""How often drafted tokens survive, by how likely the drafter held its likeliest one. Knows numbers, no drafter."""

from mtplx.engine.survival import SurvivalRecord

_NUM_BINS = 10
_MEMORY = 512.0  # trials of a bin that count, about
_PRIOR_WEIGHT = 8.0  # trials that the drafter's own word counts for


class Calibration:
    """Until it has seen much, a probability is taken at its word."""

    def __init__(self) -> None:
        self._record = SurvivalRecord(_MEMORY)  # by bin in place of position; the last is of all together

    def rate(self, probability: float) -> float:
        """The chance that a token survives, those before it having survived."""
        return self._rate(_bin(probability), probability)

    @property
    def usual_rate(self) -> float:
        """The same of a token that is not known yet."""
        return self._rate(_NUM_BINS, 0.5)

    def observe(self, probability: float, survived: bool) -> None:
        for place in (_bin(probability), _NUM_BINS):
            self._record.observe(place, survived)

    def _rate(self, place: int, guess: float) -> float:
        survived, tried = self._record.counts(place)
        return (survived + _PRIOR_WEIGHT * guess) / (tried + _PRIOR_WEIGHT)


def _bin(probability: float) -> int:
    return min(int(probability * _NUM_BINS), _NUM_BINS - 1)
