"""The learning rate rises in equal steps, then falls as half a cosine to a hundredth."""

import pytest

from mtplx.engine.training.schedule import learning_rate


def rate(step: int) -> float:
    return learning_rate(step, 100, highest=2.0, num_warm_up=10)


def test_it_rises_in_equal_steps_to_the_highest() -> None:
    assert [rate(step) for step in range(10)] == pytest.approx([0.2 * (step + 1) for step in range(10)])


def test_it_falls_from_the_highest_through_the_middle_to_a_hundredth() -> None:
    assert rate(10) == 2.0
    assert rate(55) == pytest.approx((2.0 + 0.02) / 2)
    assert rate(100) == rate(500) == pytest.approx(0.02)
    falling = [rate(step) for step in range(10, 101)]
    assert falling == sorted(falling, reverse=True)
