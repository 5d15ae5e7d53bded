"""The target's hidden states of the texts: on disk as far as the budget goes, and for the rest computed when asked for.

They are kept as float16, one row after the other, in the order of the texts. Knows where they lie and how a target
gives them; knows nothing of what is learnt from them.
"""

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtplx.engine.cache import SequenceCache
from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.training.texts import Text

HiddenStates = npt.NDArray[np.float16]  # [rows, D]

_CHUNK_ROWS = 256  # of a forward


class StateFile:
    """The states of the first `num_texts` of the texts, of as many as their file holds whole.

    It takes no more than `budget_bytes`: once a text doesn't fit, it and all after it are left out.
    """

    def __init__(self, path: Path, texts: Sequence[Text], hidden_size: int, budget_bytes: int) -> None:
        self._path = path
        self._hidden_size = hidden_size
        self._budget_rows = budget_bytes // (2 * hidden_size)
        self._starts = [0, *accumulate(text.num_rows for text in texts)]
        held_rows = path.stat().st_size // (2 * hidden_size) if path.exists() else 0
        self.num_texts = sum(end <= held_rows for end in self._starts[1:])
        del self._starts[self.num_texts + 1 :]
        if path.exists():
            os.truncate(path, 2 * hidden_size * self._starts[-1])
        self._is_full = False

    def append(self, states: HiddenStates) -> bool:
        """Keep the states [rows, D] of the next text, if there is room; whether there was."""
        self._is_full = self._is_full or self._starts[-1] + len(states) > self._budget_rows
        if self._is_full:
            return False
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(states, dtype=np.float16).tobytes())
        self._starts.append(self._starts[-1] + len(states))
        self.num_texts += 1
        return True

    def read(self, index: int) -> HiddenStates:
        """Of a text, mapped from disk."""
        start, stop = self._starts[index : index + 2]
        shape = (stop - start, self._hidden_size)
        if start == stop:
            return np.empty(shape, dtype=np.float16)
        return np.memmap(self._path, np.float16, "r", offset=2 * self._hidden_size * start, shape=shape)


class States:
    """Of any text: read where they are kept, else computed anew."""

    def __init__(self, file: StateFile, target: Target, texts: Sequence[Text]) -> None:
        self._file = file
        self._target = target
        self._texts = texts

    def of(self, index: int) -> HiddenStates:
        """The hidden states [rows, D] of the text with this number."""
        if index < self._file.num_texts:
            return self._file.read(index)
        return computed_states(self._target, self._texts[index])


def forwarded(target: Target, tokens: Sequence[int]) -> SequenceCache:
    """A cache that has been through these tokens, by forwards of whole chunks, and keeps their hidden states."""
    cache = target.new_cache()
    cache.hidden = HiddenRows(len(tokens))
    for start in range(0, len(tokens), _CHUNK_ROWS):
        chunk = tokens[start : start + _CHUNK_ROWS]
        target.forward([Rows(cache, chunk, 0)])
        cache.commit(len(chunk))
    return cache


def kept_states(cache: SequenceCache, num_rows: int) -> HiddenStates | None:
    """The states [num_rows, D] of the first rows of a cache that keeps them; None if not all were kept."""
    piece = None if cache.hidden is None else cache.hidden.take()
    if piece is None or piece.position or piece.states.shape[0] < num_rows:
        return None
    return piece.states[:num_rows].astype(np.float16)


def computed_states(target: Target, text: Text) -> HiddenStates:
    """The states [rows, D], computed anew."""
    if not text.num_rows:
        return np.empty((0, 0), dtype=np.float16)
    states = kept_states(forwarded(target, text.tokens[: text.num_rows]), text.num_rows)
    assert states is not None, "the target keeps no hidden states"
    return states
