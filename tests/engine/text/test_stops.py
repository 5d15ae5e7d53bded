"""A stop string ends the text before it, however the text was cut into pieces, and no part of it is ever shown."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.text.stops import StopMatcher


def shown(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, bool]:
    """All text shown for these pieces, and whether a stop string ended it."""
    matcher = StopMatcher(stops)
    text = ""
    for piece in pieces:
        safe, stopped = matcher.push(piece)
        text += safe
        if stopped:
            return text, True
    return text + matcher.flush(), False


def shown_by_definition(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Letter by letter: the text up to the first place where it ends in a stop string, less the longest of those."""
    for end in range(1, len(text) + 1):
        reached = [stop for stop in stops if text[:end].endswith(stop)]
        if reached:
            return text[: end - max(map(len, reached))], True
    return text, False


few_letters = st.text(alphabet="ab\n", max_size=12)
stop_lists = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3)


@given(st.lists(few_letters, max_size=8), stop_lists)
def test_outcome_does_not_depend_on_how_the_text_was_cut(pieces: list[str], stops: list[str]) -> None:
    assert shown(pieces, stops) == shown_by_definition("".join(pieces), stops)


@given(st.lists(few_letters, max_size=8), stop_lists)
def test_no_text_is_lost_without_a_stop(pieces: list[str], stops: list[str]) -> None:
    text, stopped = shown(pieces, stops)
    assert stopped or text == "".join(pieces)


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["one EN", "D two"], ["END"], ("one ", True)),
        (["one ", "END", " two"], ["END"], ("one ", True)),
        (["one EN", "C two"], ["END"], ("one ENC two", False)),
        (["aab"], ["ab"], ("a", True)),
        (["a", "a", "a", "b"], ["aab"], ("a", True)),
        (["abcd"], ["bcd", "c"], ("ab", True)),
        (["abcd"], ["cd", "bcd"], ("a", True)),
        (["🦜", "🦜"], ["🦜🦜"], ("", True)),
        (["all of it"], [], ("all of it", False)),
    ],
)
def test_examples(pieces: list[str], stops: list[str], expected: tuple[str, bool]) -> None:
    assert shown(pieces, stops) == expected


def test_only_what_may_begin_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push("Hi.\n") == ("Hi.", False)
    assert matcher.push("\nUs") == ("", False)
    assert matcher.push("ual") == ("\n\nUsual", False)
