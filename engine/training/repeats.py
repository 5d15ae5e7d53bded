"""Where a text begins to go round in circles. Pure."""

from collections.abc import Sequence

import numpy as np

_MOST_PERIOD = 64  # tokens
_LEAST_TIMES = 4
_LEAST_TOKENS = 24  # of a run, so that a row of dashes or zeros is no circle


def before_circles(tokens: Sequence[int]) -> int:
    """How many tokens there are before the text says for the third time what it then says four times or more.

    All of them if it never does. What is said twice is kept: that is how a text goes into its circle.
    """
    row = np.asarray(tokens)
    ends = [_before_circle(row, period) for period in range(1, min(_MOST_PERIOD, len(row) // _LEAST_TIMES) + 1)]
    return min(ends, default=len(row))


def _before_circle(row: np.ndarray, period: int) -> int:
    """The same of circles of one length."""
    needed = max((_LEAST_TIMES - 1) * period, _LEAST_TOKENS - period)
    if needed > len(row) - period:
        return len(row)
    # Sums over windows: a run of so many tokens that equal those one period before.
    matches = np.concatenate([[0], np.cumsum(row[period:] == row[:-period])])
    starts = np.flatnonzero(matches[needed:] - matches[:-needed] == needed)
    return int(starts[0]) + 2 * period if starts.size else len(row)
