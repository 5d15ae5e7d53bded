"""How often drafted tokens survive, by how likely the drafter held its likeliest one. Knows numbers, no drafter."""

_NUM_BINS = 10
_MEMORY = 512.0  # trials of a bin that count, about
_PRIOR_WEIGHT = 8.0  # trials that the drafter's own word counts for


class Calibration:
    """Until it has seen much, a probability is taken at its word."""

    def __init__(self) -> None:
        self._survived = [0.0] * (_NUM_BINS + 1)  # the last is of all together
        self._tried = [0.0] * (_NUM_BINS + 1)

    def rate(self, probability: float) -> float:
        """The chance that a token survives, those before it having survived."""
        return self._rate(_bin(probability), probability)

    @property
    def usual_rate(self) -> float:
        """The same of a token that is not known yet."""
        return self._rate(_NUM_BINS, 0.5)

    def observe(self, probability: float, survived: bool) -> None:
        for place in (_bin(probability), _NUM_BINS):
            keep = 1.0 - 1.0 / _MEMORY
            self._survived[place] = keep * self._survived[place] + survived
            self._tried[place] = keep * self._tried[place] + 1.0

    def _rate(self, place: int, guess: float) -> float:
        return (self._survived[place] + _PRIOR_WEIGHT * guess) / (self._tried[place] + _PRIOR_WEIGHT)


def _bin(probability: float) -> int:
    return min(int(probability * _NUM_BINS), _NUM_BINS - 1)
