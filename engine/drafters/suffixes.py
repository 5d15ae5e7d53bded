"""An index of all substrings of a growing text: which of its suffixes occurred before, and where.

A suffix automaton (Blumer et al. 1985) built token by token, as SAM Decoding (Hu et al., 2411.10666) uses for drafts.
Knows tokens only; what a match is good for is for others to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice, takewhile

TEXT_END = -1  # no token of a model: keeps texts apart in an index of several
_ROOT = 0
_MAX_RENEWED = 32  # states of one text that learn of a new position


@dataclass(frozen=True)
class Match:
    """`length` tokens that also stand in `tokens` before position `end` (exclusive); length 0 is no match."""

    length: int
    end: int
    tokens: Sequence[int]

    def following(self, depth: int) -> tuple[int, ...]:
        """Up to `depth` tokens that came next in the same text.

        A text that is still being written and runs out goes on with the copied tokens: a period repeats.
        """
        copied = self.tokens[self.end : self.end + depth]
        return tuple(takewhile(lambda token: token != TEXT_END, islice(cycle(copied), depth)))


class SuffixAutomaton:
    """Appending takes amortised constant time and memory: n tokens make at most 2n states.

    A state stands for the substrings that end at the same set of positions; `_lengths` has the longest of each, and
    its link leads to the longest suffix of them that also ends elsewhere. Of the positions only the latest is kept:
    what was written last resembles what comes next best.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._links = [-1]
        self._lengths = [0]
        self._latest = [0]  # where the state's substrings end (exclusive)
        self._whole = _ROOT  # the state of the whole text
        self._matched = _ROOT  # the state of the longest suffix that occurred before
        self._match_end = 0  # where that was

    @property
    def num_states(self) -> int:
        return len(self._lengths)

    @property
    def match(self) -> Match:
        """The longest suffix that occurred before, at the latest such place."""
        return Match(self._lengths[self._matched], self._match_end, self.tokens)

    def append(self, token: int) -> None:
        following, links = self._next, self._links
        self.tokens.append(token)
        end = len(self.tokens)
        state, whole = self._whole, self._add_state({}, end, end)
        while state != -1 and token not in following[state]:
            following[state][token] = whole
            state = links[state]
        links[whole] = self._matched = _ROOT if state == -1 else self._state_after(state, token)
        self._whole = whole
        self._match_end = self._latest[self._matched]
        self._renew(self._matched, end)

    def find(self, tokens: Sequence[int]) -> Match:
        """The longest suffix of `tokens` that is in the text. Takes time in proportion to `tokens`, not to the text."""
        state, length = _ROOT, 0
        for token in tokens:
            while state != _ROOT and token not in self._next[state]:
                state = self._links[state]
                length = self._lengths[state]
            if token in self._next[state]:
                state = self._next[state][token]
                length += 1
        return Match(length, self._latest[state], self.tokens)

    def _state_after(self, state: int, token: int) -> int:
        """The state of the longest substring of `state` with `token` after it, and of nothing longer."""
        longer = self._next[state][token]
        length = self._lengths[state] + 1
        if self._lengths[longer] == length:
            return longer
        # The shorter substrings of `longer` now end at a position where the longer ones don't: they part.
        parted = self._add_state(self._next[longer].copy(), length, self._latest[longer])
        self._links[parted] = self._links[longer]
        self._links[longer] = parted
        while state != -1 and self._next[state].get(token) == longer:
            self._next[state][token] = parted
            state = self._links[state]
        return parted

    def _add_state(self, following: dict[int, int], length: int, latest: int) -> int:
        self._next.append(following)
        self._links.append(_ROOT)
        self._lengths.append(length)
        self._latest.append(latest)
        return len(self._lengths) - 1

    def _renew(self, state: int, end: int) -> None:
        """All suffixes of the text end at `end`.

        They are in as many states as matches are nested in one another: a handful, but for text that repeats one
        token throughout. There the shortest ones are left as they are: an older place is as good.
        """
        latest, links = self._latest, self._links
        for _ in range(_MAX_RENEWED):
            if state == _ROOT:
                return
            latest[state] = end
            state = links[state]
