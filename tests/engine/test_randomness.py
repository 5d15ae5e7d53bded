"""Numbers depend on what they are for, and on nothing else."""

import itertools

import numpy as np
import pytest
from scipy import stats

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
    assert len(numbers) == 4 * 2 * 3 * len(Purpose) * 2


def test_the_numbers_are_pinned() -> None:
    """A seed must give the same text in every release."""
    key = RandomKey(seed=42, choice=1)
    assert [key.uniform(3, purpose) for purpose in (Purpose.DRAFT, Purpose.ACCEPT, Purpose.EMIT)] == [
        0.537655039664533,
        0.1613724341152769,
        0.9326136847540468,
    ]
    np.testing.assert_allclose(
        key.noise(3, 49152)[[0, 1, 49151]],
        [0.4141647150981079, 0.18097956341723612, 0.035653110084983626],
        rtol=1e-12,
    )


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1])
def test_the_numbers_are_those_of_numpys_philox(seed: int) -> None:
    for position, start in itertools.product((0, 1, 2**40), (0, 5)):
        counter = np.array([0, position, Purpose.ACCEPT, start], dtype=np.uint64)
        philox = np.random.Philox(key=np.array([seed % 2**64, 3], dtype=np.uint64), counter=counter)
        expected = np.random.Generator(philox).random()
        assert RandomKey(seed, 3).uniform(position, Purpose.ACCEPT, start) == expected


def test_the_noise_of_a_token_is_its_own_however_many_are_asked_for() -> None:
    key = RandomKey(seed=7)
    np.testing.assert_array_equal(key.noise(5, 1000)[:37], key.noise(5, 37))


def test_noise_changes_with_seed_choice_position_and_token() -> None:
    noise = [
        RandomKey(seed, choice).noise(position, 50)
        for seed, choice, position in itertools.product((0, 1, -1, 2**63), (0, 1), (0, 1, 2))
    ]
    assert len(np.unique(noise)) == 4 * 2 * 3 * 50


@pytest.mark.parametrize(
    "numbers",
    [
        np.array([RandomKey(9).noise(position, 3)[2] for position in range(20_000)]),
        RandomKey(9).noise(0, 20_000),
    ],
    ids=["over positions", "over tokens"],
)
def test_noise_is_uniform_and_each_number_is_new(numbers: np.ndarray) -> None:
    """Would fail right noise once in a million seeds, each way."""
    assert stats.kstest(numbers, stats.uniform.cdf).pvalue > 1e-6
    assert stats.spearmanr(numbers[1:], numbers[:-1]).pvalue > 1e-6


def test_numbers_spread_evenly() -> None:
    numbers = np.array([RandomKey(9).uniform(position, Purpose.DRAFT) for position in range(4000)])
    assert ((numbers >= 0.0) & (numbers < 1.0)).all()
    counts, _ = np.histogram(numbers, bins=10, range=(0.0, 1.0))
    assert abs(counts - 400).max() < 5 * 19  # five standard deviations
