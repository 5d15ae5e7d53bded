"""A stop string ends the text before it, however the text was cut into pieces, and no part of it is ever shown."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mtplx.engine.text.stops import StopMatcher


def shown(pieces: Sequence[str], matcher: StopMatcher) -> tuple[str, str | None]:
    """All text shown for these pieces, and the stop string that ended it."""
    text = ""
    for piece in pieces:
        safe, stop = matcher.push(piece)
        text += safe
        if stop is not None:
            return text, stop
    return text + matcher.flush(), None


def shown_by_definition(text: str, stops: Sequence[str], start: int = 0) -> tuple[str, str | None]:
    """Letter by letter: the text up to the first place after `start` where it ends in a stop string, less the longest
    of those."""
    for end in range(start + 1, len(text) + 1):
        reached = [stop for stop in stops if text[:end].endswith(stop)]
        if reached:
            longest = max(reached, key=len)
            return text[: end - len(longest)], longest
    return text, None


few_letters = st.text(alphabet="ab\n", max_size=12)
stop_lists = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3)


@given(st.lists(few_letters, max_size=8), stop_lists)
def test_outcome_does_not_depend_on_how_the_text_was_cut(pieces: list[str], stops: list[str]) -> None:
    assert shown(pieces, StopMatcher(stops)) == shown_by_definition("".join(pieces), stops)


@given(few_letters, st.lists(few_letters, max_size=8), stop_lists)
@example("b", ["aa"], ["b", "bab"])  # one that is held back because another may begin there
def test_a_stop_string_that_ends_where_the_text_may_not_stop_is_text(
    first: str, then: list[str], stops: list[str]
) -> None:
    matcher = StopMatcher(stops)
    safe, stop = matcher.push(first, may_stop=False)
    assert stop is None
    rest, stop = shown(then, matcher)
    assert (safe + rest, stop) == shown_by_definition(first + "".join(then), stops, start=len(first))


@given(st.lists(few_letters, max_size=8), stop_lists)
def test_no_text_is_lost_without_a_stop(pieces: list[str], stops: list[str]) -> None:
    text, stop = shown(pieces, StopMatcher(stops))
    assert stop is not None or text == "".join(pieces)


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["one EN", "D two"], ["END"], ("one ", "END")),
        (["one ", "END", " two"], ["END"], ("one ", "END")),
        (["one EN", "C two"], ["END"], ("one ENC two", None)),
        (["aab"], ["ab"], ("a", "ab")),
        (["a", "a", "a", "b"], ["aab"], ("a", "aab")),
        (["abcd"], ["bcd", "c"], ("ab", "c")),
        (["abcd"], ["cd", "bcd"], ("a", "bcd")),
        (["🦜", "🦜"], ["🦜🦜"], ("", "🦜🦜")),
        (["all of it"], [], ("all of it", None)),
    ],
)
def test_examples(pieces: list[str], stops: list[str], expected: tuple[str, str | None]) -> None:
    assert shown(pieces, StopMatcher(stops)) == expected


def test_only_what_may_begin_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push("Hi.\n") == ("Hi.", None)
    assert matcher.push("\nUs") == ("", None)
    assert matcher.push("ual") == ("\n\nUsual", None)
