"""A suffix automaton finds the longest suffix that occurred before, at its latest place, in linear time and space."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.drafters.suffixes import TEXT_END, Match, SuffixAutomaton


def automaton(text: list[int]) -> SuffixAutomaton:
    index = SuffixAutomaton()
    for token in text:
        index.append(token)
    return index


def longest_by_search(text: list[int], suffix_of: list[int], ends: range) -> tuple[int, int]:
    """Length and end of the longest suffix of `suffix_of` that ends at one of `ends`, at the latest; by definition."""

    def length_at(end: int) -> int:
        return sum(
            1
            for length in range(1, min(end, len(suffix_of)) + 1)
            if text[end - length : end] == suffix_of[len(suffix_of) - length :]
        )

    length, end = max(((length_at(end), end) for end in ends), default=(0, 0))
    return (length, end) if length else (0, 0)


def found(match: Match) -> tuple[int, int]:
    return (match.length, match.end) if match.length else (0, 0)


few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=33)


@given(few_tokens)
def test_after_each_token_the_match_is_the_longest_and_the_latest_before_the_end(text: list[int]) -> None:
    index = SuffixAutomaton()
    for num_tokens, token in enumerate(text, 1):
        index.append(token)
        so_far = text[:num_tokens]
        assert found(index.match) == longest_by_search(so_far, so_far, range(1, num_tokens))


@given(few_tokens, few_tokens)
def test_the_longest_suffix_of_another_text_is_found_at_its_latest_place(text: list[int], other: list[int]) -> None:
    assert found(automaton(text).find(other)) == longest_by_search(text, other, range(1, len(text) + 1))


def fibonacci_word(num_tokens: int) -> list[int]:
    shorter, longer = [0], [0, 1]
    while len(longer) < num_tokens:
        shorter, longer = longer, longer + shorter
    return longer[:num_tokens]


TEXTS = {
    "one token": [0] * 2000,
    "a period": [0, 1, 2, 3, 4] * 400,
    "nested repeats": fibonacci_word(2000),
    "most states": [0] + [1] * 1998 + [0],
    "all different": list(range(2000)),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_states_are_at_most_twice_the_tokens(text: list[int]) -> None:
    assert automaton(text).num_states <= 2 * len(text)


class Counted(int):
    """A token that counts how often an index looks for it."""

    num_lookups = 0

    def __hash__(self) -> int:
        Counted.num_lookups += 1
        return int(self)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_lookups_are_at_most_ten_for_each_token(text: list[int]) -> None:
    Counted.num_lookups = 0
    automaton([Counted(token) for token in text])
    assert Counted.num_lookups <= 10 * len(text)


@pytest.mark.parametrize(
    ("text", "depth", "following"),
    [
        ([1, 2, 3, 4, 9, 1, 2], 2, (3, 4)),
        ([1, 2, 9, 1, 2], 7, (9, 1, 2, 9, 1, 2, 9)),  # past the end, a period goes on
        ([5, 5, 5], 3, (5, 5, 5)),
        ([1, 2, 3, TEXT_END, 1, 2], 4, (3,)),  # another text begins there
        ([1, 2, TEXT_END, 1, 2], 4, ()),
    ],
)
def test_what_followed_a_match(text: list[int], depth: int, following: tuple[int, ...]) -> None:
    assert automaton(text).match.following(depth) == following


def test_no_match_runs_from_one_text_into_the_next() -> None:
    index = automaton([1, 2, TEXT_END, 3, 4])
    lengths = {pair: index.find(pair).length for pair in itertools.permutations([1, 2, 3, 4], 2)}
    assert {pair for pair, length in lengths.items() if length == 2} == {(1, 2), (3, 4)}
