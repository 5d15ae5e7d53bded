"""Speedups and their intervals."""

import numpy as np
import pytest

from mtplx.server.bench.statistics import Speedup, speedup


def test_the_speedup_is_the_ratio_of_total_times() -> None:
    assert speedup([2.0, 4.0], [1.0, 3.0]).ratio == 6 / 4


def test_prompts_that_agree_leave_no_doubt_however_long_each_takes() -> None:
    plain_s = np.array([1.0, 5.0, 0.25, 8.0])
    assert speedup(plain_s, plain_s / 2) == Speedup(2.0, 2.0, 2.0)


def test_one_prompt_gives_an_interval_without_width() -> None:
    assert speedup([3.0], [2.0]) == Speedup(1.5, 1.5, 1.5)


def test_of_two_prompts_the_interval_reaches_from_one_to_the_other() -> None:
    assert speedup([1.0, 3.0], [1.0, 1.0]) == Speedup(2.0, 1.0, 3.0)  # a quarter of the resamples has just one of them


def test_the_interval_of_many_prompts_is_the_normal_approximations() -> None:
    plain_s = 1 + np.random.default_rng(1).normal(0, 0.1, 400)
    found = speedup(plain_s, np.ones(400))
    half_width = 1.96 * plain_s.std() / np.sqrt(400)
    assert found.high - found.ratio == pytest.approx(half_width, rel=0.1)
    assert found.ratio - found.low == pytest.approx(half_width, rel=0.1)


def test_the_same_times_give_the_same_interval_and_another_seed_a_similar_one() -> None:
    plain_s, other_s = [1.0, 2.0, 4.0, 1.5], [1.0, 1.0, 1.5, 1.0]
    first, again, other = (speedup(plain_s, other_s, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert (first.low, first.high) == pytest.approx((other.low, other.high), rel=0.1)
