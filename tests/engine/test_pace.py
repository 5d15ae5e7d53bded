"""Prompts come in as fast as texts under way can bear."""

from collections.abc import Callable

import pytest

from mtplx.engine.pace import PromptPace

CHUNK = 64


def steps(pace: PromptPace, count: int, seconds: Callable[[int], float], num_texts: int = 1) -> list[int]:
    """The rows of prompts that so many steps took, which last as `seconds` says by that number."""
    taken = []
    for _ in range(count):
        num_rows = pace.rows(num_texts, CHUNK)
        pace.observe(num_texts, num_rows, seconds(num_rows))
        taken.append(num_rows)
    return taken


def after_plain_steps(plain_s: float, num_texts: int = 1) -> PromptPace:
    pace = PromptPace()
    for _ in range(5):
        pace.observe(num_texts, 0, plain_s)
    return pace


@pytest.mark.parametrize("row_s", [0.0001, 0.0005, 0.0008])
def test_a_step_gets_no_more_than_half_as_long_again(row_s: float) -> None:
    taken = steps(after_plain_steps(0.004), 30, lambda rows: 0.004 + row_s * rows)
    assert taken[-1] == pytest.approx(0.5 * 0.004 / row_s, abs=1)


def test_a_few_steps_that_were_held_up_leave_no_room_for_more_rows() -> None:
    pace = after_plain_steps(0.004)
    for _ in range(5):
        pace.observe(1, 0, 0.012)  # as while the prompt is read and turned into tokens
    assert steps(pace, 30, lambda rows: 0.004 + 0.0005 * rows)[-1] <= 8


def test_there_are_no_more_rows_than_may_be() -> None:
    assert steps(after_plain_steps(0.004), 30, lambda rows: 0.004)[-1] == CHUNK


def test_the_longer_a_prompt_looks_back_the_fewer_rows_join() -> None:
    pace = after_plain_steps(0.01)
    few = steps(pace, 30, lambda rows: 0.01 + 0.001 * rows)[-1]
    fewer = steps(pace, 30, lambda rows: 0.01 + 0.002 * rows)[-1]
    assert few > fewer > 1


def test_where_there_is_no_room_whole_chunks_come_seldom() -> None:
    taken = steps(after_plain_steps(0.004), 200, lambda rows: 0.004 + (0.006 + 0.001 * rows if rows else 0.0))
    late = taken[50:]
    assert set(late) == {0, CHUNK}
    assert 0 < late.count(CHUNK) <= len(late) / 25


def test_another_prompt_comes_in_by_a_few_rows_again() -> None:
    pace = after_plain_steps(0.004)
    steps(pace, 200, lambda rows: 0.004 + (0.006 + 0.001 * rows if rows else 0.0))
    pace.begin()
    assert steps(pace, 30, lambda rows: 0.004 + 0.0006 * rows)[-1] == 3


def test_more_texts_under_way_leave_more_time() -> None:
    pace = after_plain_steps(0.004)
    for _ in range(5):
        pace.observe(8, 0, 0.012)
    alone = steps(pace, 20, lambda rows: 0.004 + 0.0006 * rows, 1)[-1]
    assert steps(pace, 20, lambda rows: 0.012 + 0.0006 * rows, 8)[-1] > 2 * alone


def test_the_first_step_is_left_to_texts_so_that_it_is_known_what_it_takes() -> None:
    pace = PromptPace()
    taken = steps(pace, 3, lambda rows: 0.004 + 0.0006 * rows, num_texts=3)
    assert taken == [0, 3, 3]


def test_other_texts_under_way_end_the_seldom_chunks() -> None:
    pace = after_plain_steps(0.004)
    dear = steps(pace, 60, lambda rows: 0.004 + (0.006 + 0.001 * rows if rows else 0.0))
    assert dear[-1] in (0, CHUNK)
    pace.observe(8, 0, 0.050)
    assert 0 < steps(pace, 10, lambda rows: 0.050 + 0.001 * rows, num_texts=8)[-1] < CHUNK


def test_steps_without_texts_tell_nothing() -> None:
    pace = after_plain_steps(0.004)
    pace.observe(0, CHUNK, 10.0)
    assert pace.rows(2, CHUNK) == 2
