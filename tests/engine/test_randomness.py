"""Numbers depend on what they are for, and on nothing else."""

import itertools

import numpy as np

from mtplx.engine.randomness import Purpose, RandomKey


def test_a_number_is_the_same_whenever_it_is_asked_for() -> None:
    key = RandomKey(seed=1234)
    first = [key.uniform(position, Purpose.ACCEPT) for position in range(5)]
    key.uniform(77, Purpose.EMIT)
    assert [RandomKey(1234).uniform(position, Purpose.ACCEPT) for position in range(5)] == first


def test_a_number_changes_with_each_thing_it_is_keyed_by() -> None:
    numbers = {
        RandomKey(seed, choice).uniform(position, purpose, start)
        for seed, choice, position, purpose, start in itertools.product(
            (0, 1, -1, 2**63), (0, 1), (0, 1, 2), Purpose, (0, 1)
        )
    }
    assert len(numbers) == 4 * 2 * 3 * 3 * 2


def test_the_numbers_are_pinned() -> None:
    """A seed must give the same text in every release."""
    key = RandomKey(seed=42, choice=1)
    assert [key.uniform(3, purpose) for purpose in Purpose] == [
        0.537655039664533,
        0.1613724341152769,
        0.9326136847540468,
    ]


def test_numbers_spread_evenly() -> None:
    numbers = np.array([RandomKey(9).uniform(position, Purpose.DRAFT) for position in range(4000)])
    assert ((numbers >= 0.0) & (numbers < 1.0)).all()
    counts, _ = np.histogram(numbers, bins=10, range=(0.0, 1.0))
    assert abs(counts - 400).max() < 5 * 19  # five standard deviations
