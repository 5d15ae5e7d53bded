"""How sure a speedup is. Pure functions over times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Speedup:
    """How many times faster, with the ends of the interval in which it lies with 95 % confidence."""

    ratio: float
    low: float
    high: float


def speedup(plain_s: Sequence[float], other_s: Sequence[float], *, num_resamples: int = 2000, seed: int = 0) -> Speedup:
    """Of the other way over the plain one: the ratio of their total times, of which entry i is prompt i's.

    The interval is the percentile bootstrap's over prompts (Efron 1979), drawn in pairs: a prompt that takes longer
    does so both ways. A single prompt says nothing of others, and so gives an interval without width.
    """
    plain, other = np.array(plain_s), np.array(other_s)
    chosen = np.random.default_rng(seed).integers(len(plain), size=(num_resamples, len(plain)))
    ratios = plain[chosen].sum(axis=1) / other[chosen].sum(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Speedup(float(plain.sum() / other.sum()), float(low), float(high))
