"""Texts that go round in circles end at their second round."""

from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.training.repeats import before_circles

OPENING = tuple(range(100, 140))


def test_a_text_without_circles_is_kept_whole() -> None:
    assert before_circles(range(300)) == 300
    assert before_circles(()) == 0


@given(st.integers(8, 60), st.integers(4, 6))
def test_what_is_said_four_times_is_kept_twice(period: int, times: int) -> None:
    circle = tuple(range(period))
    assert before_circles(OPENING + circle * times) == len(OPENING) + 2 * period


def test_what_is_said_three_times_is_kept() -> None:
    text = OPENING + tuple(range(30)) * 3
    assert before_circles(text) == len(text)


def test_a_short_row_of_one_token_is_no_circle_but_a_long_one_is() -> None:
    assert before_circles((*OPENING, *[7] * 20, *OPENING)) == 2 * len(OPENING) + 20
    assert before_circles((*OPENING, *[7] * 60)) == len(OPENING) + 2


def test_a_text_that_leaves_its_circle_is_cut_all_the_same() -> None:
    assert before_circles(OPENING + tuple(range(10)) * 5 + OPENING) == len(OPENING) + 20
