"""Exact rollback on mlx-lm's own caches, for models that run one sequence at a time.

Knows how each kind of mlx-lm cache forgets: keys and values shorten; a rotating window, which mlx-lm cannot shorten
once it has wrapped, is replaced by one that can; all else (recurrent states, caches of a model's own) is kept as it
was at the last commit and restored. Knows no model.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import CacheList, ChunkedKVCache, KVCache, RotatingKVCache

from mtplx.engine.cache import KeyValueBuffer, State, check_commit, check_fresh, check_settled, joined_with_room
from mtplx.engine.hidden import HiddenRows


class WindowCache:
    """A sliding window in the guise of mlx-lm's RotatingKVCache, that can forget rows at any time."""

    def __init__(self, window: int) -> None:
        self.max_size = window
        self.offset = 0
        self._buffer = KeyValueBuffer(window)
        self._first_seen = 0

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        return self._buffer.keys, self._buffer.values

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Store rows [1, H, n, D]; give all rows that the first of them sees, and the new ones."""
        self._first_seen = self._buffer.first_visible(self.offset)
        self._buffer.write(self.offset, keys, values)
        self.offset += keys.shape[2]
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last update gave, for a later layer that shares this one's rows."""
        return self._buffer.read(self._first_seen, self.offset)

    def make_mask(
        self, num_rows: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | str | None:
        window = min(window_size or self.max_size, self.max_size)
        num_before = self.offset - self._buffer.first_visible(self.offset)
        if num_before + num_rows > window or return_array:
            mask: mx.array = create_causal_mask(num_rows, num_before, window_size=window)
            return mask
        return None if num_rows == 1 else "causal"

    def trim(self, num_rows: int) -> None:
        """Forget the last rows."""
        self.offset -= num_rows

    def settle(self) -> None:
        """Let go of what lies outside the window; all rows are now certain."""
        self._buffer.trim(self.offset)

    def read_visible(self) -> tuple[mx.array, mx.array]:
        """Keys and values [1, H, n, D] that later rows see."""
        return self._buffer.read_visible(self.offset)

    def restore(self, num_rows: int, keys: mx.array, values: mx.array) -> None:
        """Hold copies of these, the last of `num_rows` rows."""
        self.offset = num_rows
        self._buffer.restore(num_rows, [keys], [values])


class SequentialCache:
    """The rows of one sequence in mlx-lm caches.

    Where a layer cannot shorten, keeping a part of the uncommitted rows means going back to the last commit and
    running the kept rows again. They are `owed` until the target's next forward, which settles them first.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = [_replace_rotating(layer) for layer in layers]
        self.owed: list[int] = []
        self.num_committed = 0
        self.hidden: HiddenRows | None = None
        self.expected_rows = 0
        self._uncommitted: list[int] = []
        self._saved: list[tuple[Any, dict[str, Any]]] = []

    @property
    def num_uncommitted(self) -> int:
        return len(self._uncommitted)

    @property
    def arrays(self) -> list[Any]:
        """What must be evaluated for the rows to be in memory, as a tree."""
        return [leaf.state for leaf in _leaves(self.layers)]

    def prepare(self) -> None:
        """Before a forward: make sure there is a way back to the last commit."""
        if not self._uncommitted:
            self._saved = [(leaf, copy.deepcopy(vars(leaf))) for leaf in _leaves(self.layers) if not _can_shorten(leaf)]

    def extend(self, tokens: Sequence[int]) -> None:
        """Count rows that a forward appended."""
        self._uncommitted += tokens

    def commit(self, num_rows: int) -> None:
        check_commit(num_rows, len(self._uncommitted))
        kept, num_dropped = self._uncommitted[:num_rows], len(self._uncommitted) - num_rows
        if self.hidden is not None:
            self.hidden.commit(num_dropped)
        if num_dropped and self._saved:
            self._go_back()
            self.owed += kept
        elif num_dropped:
            for leaf in _leaves(self.layers):
                leaf.trim(num_dropped)
        self._uncommitted, self._saved = [], []
        self.num_committed += num_rows
        for leaf in _leaves(self.layers):
            if isinstance(leaf, WindowCache):
                leaf.settle()

    def rollback(self) -> None:
        self.commit(0)

    @property
    def num_settled(self) -> int:
        return self.num_committed - len(self.owed)

    @property
    def needs_state(self) -> bool:
        return any(not _keeps_every_row(leaf) for leaf in _leaves(self.layers))

    def read_rows(self, start: int, end: int) -> list[mx.array]:
        leaves = [leaf for leaf in _leaves(self.layers) if _keeps_every_row(leaf)]
        return [part[..., start:end, :] for leaf in leaves for part in (leaf.keys, leaf.values)]

    def read_state(self) -> State:
        """Of each layer with a window what later rows see; of other such layers all there is."""
        check_settled(self)
        leaves = [leaf for leaf in _leaves(self.layers) if not _keeps_every_row(leaf)]
        return [leaf.read_visible() if isinstance(leaf, WindowCache) else vars(leaf) for leaf in leaves]

    def restore(self, num_rows: int, rows: Sequence[Sequence[mx.array]], state: State) -> None:
        check_fresh(self)
        pieces, states = iter(zip(*rows, strict=True)), iter(state or ())
        for leaf in _leaves(self.layers):
            if _keeps_every_row(leaf):
                leaf.keys, leaf.values = joined_with_room(next(pieces)), joined_with_room(next(pieces))
                leaf.offset = num_rows
            elif isinstance(leaf, WindowCache):
                leaf.restore(num_rows, *next(states))
            else:
                vars(leaf).update(next(states))
        self.num_committed = num_rows
        mx.eval(self.arrays)

    def _go_back(self) -> None:
        for leaf, state in self._saved:
            vars(leaf).clear()
            vars(leaf).update(state)
        for leaf in _leaves(self.layers):
            if _can_shorten(leaf):
                leaf.trim(len(self._uncommitted))


def _leaves(layers: Sequence[Any]) -> Iterator[Any]:
    for layer in layers:
        if isinstance(layer, CacheList):
            yield from _leaves(layer.caches)
        else:
            yield layer


def _keeps_every_row(leaf: Any) -> bool:
    return type(leaf) is KVCache


def _can_shorten(leaf: Any) -> bool:
    return type(leaf) in (KVCache, ChunkedKVCache, WindowCache)


def _replace_rotating(layer: Any) -> Any:
    if isinstance(layer, CacheList):
        return CacheList(*(_replace_rotating(part) for part in layer.caches))
    if type(layer) is RotatingKVCache and layer.keep == 0:
        return WindowCache(layer.max_size)
    return layer
