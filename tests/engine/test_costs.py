"""Costs of rounds, learnt from times that waver."""

import numpy as np
import pytest

from mtplx.engine.costs import Costs, cost_curve


def learnt(times: list[tuple[int, float]]) -> Costs:
    costs = Costs()
    for num_rows, seconds in times:
        costs.observe_round(num_rows, seconds)
    return costs


def test_costs_are_straight_between_what_is_known_and_never_fall() -> None:
    assert cost_curve({1: 1.0, 3: 2.0, 5: 1.5}, 6) == pytest.approx([1.0, 1.5, 2.0, 2.0, 2.0, 2.25])


def test_one_known_cost_is_enough_for_a_guess_at_all() -> None:
    assert cost_curve({1: 2.0}, 3) == pytest.approx([2.0, 2.2, 2.4])
    assert cost_curve({3: 2.4}, 4) == pytest.approx([2.0, 2.2, 2.4, 2.6])


def test_the_first_time_of_a_size_and_outliers_do_not_count() -> None:
    times = [(1, 9.0), *[(1, 1.0)] * 12, (3, 90.0), *[(1, 1.0), (3, 2.0)] * 4, (3, 50.0), *[(1, 1.0), (3, 2.0)] * 4]
    costs = learnt(times)
    assert (costs.rows(1), costs.rows(3)) == pytest.approx((1.0, 2.0))


def test_the_first_time_of_a_size_counts_not_even_while_there_is_one_more() -> None:
    costs = learnt([*[(1, 1.0)] * 10, (3, 0.1), *[(1, 1.0)] * 4, (3, 1.3), *[(1, 1.0)] * 4])
    assert costs.rows(3) == pytest.approx(1.3)


def test_a_machine_that_becomes_slower_is_no_dearer_row() -> None:
    """Rows are compared with rounds of the same time, however seldom each size comes."""
    times = [(1, 1.0)] * 20 + [(5, 2.0)] * 20 + [(5, 4.0)] * 40 + [(1, 2.0), (5, 4.0), (5, 4.0), (5, 4.0)] * 6
    costs = learnt(times)
    assert costs.rows(5) / costs.rows(1) == pytest.approx(2.0, rel=0.05)
    assert costs.rows(5) * costs.slowness == pytest.approx(4.0, rel=0.05)


def test_ratios_are_found_while_a_neighbour_comes_and_goes() -> None:
    random = np.random.default_rng(0)
    slow = np.repeat(random.integers(1, 3, 40), 25)
    rows = random.choice([1, 2, 5], 1000)
    costs = learnt(
        [(int(num), float(cost * {1: 1.0, 2: 1.2, 5: 2.0}[num])) for num, cost in zip(rows, slow, strict=True)]
    )
    assert costs.rows(2) / costs.rows(1) == pytest.approx(1.2, rel=0.1)
    assert costs.rows(5) / costs.rows(1) == pytest.approx(2.0, rel=0.1)


def test_a_size_deserves_another_look_once_it_has_not_been_seen_for_long() -> None:
    costs = learnt([(1, 1.0)] * 20 + [(2, 1.0)] * 100)
    assert not costs.is_uncertain(1)
    assert costs.is_uncertain(3)
    for _ in range(30):
        costs.observe_round(2, 1.0)
    assert costs.is_uncertain(1)


def test_drafting_and_catching_up_are_counted_by_token_and_row() -> None:
    costs = learnt([(1, 1.0)] * 8)
    for _ in range(3):
        costs.observe_draft("self", 4, 1.0)
        costs.observe_catch_up("self", 100, 5.0)
    assert (costs.draft("self"), costs.catch_up("self")) == pytest.approx((0.25, 0.05))
