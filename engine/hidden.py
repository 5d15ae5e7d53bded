"""The target's hidden states of a sequence's latest rows, for whoever predicts from them.

A row's hidden state is what the output head sees of it. Rows of which there is none, as those lent by an earlier text,
leave a gap: what was held before it is let go. Knows positions; knows no model and no cache.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from mtplx.engine.types import MOST_HIDDEN_ROWS, HostStates


@dataclass(frozen=True)
class HiddenPiece:
    """Hidden states [n, D] of the rows at `position` and after."""

    position: int
    states: HostStates


class HiddenRows:
    """Rows come as forwards append them, uncommitted; a reader takes the committed ones away.

    Of committed rows that nobody takes the newest `most_rows` are held.
    """

    def __init__(self, most_rows: int = MOST_HIDDEN_ROWS) -> None:
        self._most_rows = most_rows
        self._pieces: deque[HostStates] = deque()
        self._start = 0
        self._num_rows = 0

    def append(self, position: int, states: HostStates) -> None:
        """Hold the states [n, D] of the rows at `position` and after."""
        if position != self._start + self._num_rows:
            self._pieces.clear()
            self._start, self._num_rows = position, 0
        self._pieces.append(states)
        self._num_rows += len(states)

    def commit(self, num_dropped: int) -> None:
        """Forget the last rows, as many as are dropped, and then the first ones, as many as are too many."""
        while num_dropped and self._pieces:
            num_dropped -= self._forget_last(num_dropped)
        while self._num_rows > self._most_rows:
            self._forget_first(self._num_rows - self._most_rows)

    def take(self) -> HiddenPiece | None:
        """What is held, once; None if that is nothing. To be called while no rows are uncommitted."""
        if not self._pieces:
            return None
        states = self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces)
        piece = HiddenPiece(self._start, states)
        self._pieces.clear()
        self._start, self._num_rows = self._start + self._num_rows, 0
        return piece

    def _forget_last(self, num_rows: int) -> int:
        """Up to that many rows of the last piece; how many."""
        piece = self._pieces.pop()
        num_left = max(0, len(piece) - num_rows)
        if num_left:
            self._pieces.append(piece[:num_left])
        self._num_rows -= len(piece) - num_left
        return len(piece) - num_left

    def _forget_first(self, num_rows: int) -> None:
        """Up to that many rows of the first piece."""
        piece = self._pieces.popleft()
        num_left = max(0, len(piece) - num_rows)
        if num_left:
            self._pieces.appendleft(piece[-num_left:])
        self._start += len(piece) - num_left
        self._num_rows -= len(piece) - num_left
