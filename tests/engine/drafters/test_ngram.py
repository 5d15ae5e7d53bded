"""The n-gram drafter copies what followed the longest earlier match."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.drafters.ngram import copy_continuation, longest_suffix_match


@pytest.mark.parametrize(
    ("tokens", "depth", "draft"),
    [
        ([1, 2, 3, 4, 9, 1, 2], 2, (3, 4)),
        ([1, 2, 3, 1, 2, 4, 1, 2], 1, (4,)),  # of equally long matches, the latest
        ([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], 1, (3,)),  # the longer match, though another is later
        ([1, 2, 9, 1, 2], 5, (9, 1, 2, 9, 1)),  # past the end, a period goes on
        ([5, 5, 5], 3, (5, 5, 5)),
        ([1, 2, 3, 4], 3, ()),
        ([1, 2, 3, 1], 3, ()),  # one token in common is chance
        ([1], 3, ()),
    ],
)
def test_drafts(tokens: list[int], depth: int, draft: tuple[int, ...]) -> None:
    assert copy_continuation(tokens, depth) == draft


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_the_match_is_the_longest_and_the_latest(tokens: list[int]) -> None:
    def length_of_match(end: int) -> int:
        longest = 0
        while longest < end and tokens[end - 1 - longest] == tokens[-1 - longest]:
            longest += 1
        return longest

    lengths = [length_of_match(end) for end in range(1, len(tokens))]
    best = max(lengths, default=0)
    expected = len(lengths) - lengths[::-1].index(best) if best >= 2 else None
    assert longest_suffix_match(np.array(tokens)) == expected


def test_matches_are_compared_by_64_tokens_at_most() -> None:
    """So that text that repeats throughout costs bounded work: of two matches as long as that, the later one counts."""
    text = list(range(100, 170))
    longest, long_enough, shorter = [*text, 1], [*text[-64:], 2], [*text[-63:], 3]
    assert copy_continuation([*longest, 0, *long_enough, 0, *shorter, 0, *text], 1) == (2,)
