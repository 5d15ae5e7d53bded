"""What a sequence remembers of the rows it has been through, and how it forgets.

Knows how keys and values are stored, kept and dropped. Knows no model and no token's meaning.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import mlx.core as mx

from mtplx.engine.errors import CacheStateError
from mtplx.engine.hidden import HiddenRows

_GROWTH_ROWS = 256

State: TypeAlias = Any  # a tree of arrays and plain values


class SequenceCache(Protocol):
    """The rows of one sequence, over all layers.

    A forward appends rows *uncommitted*, and several forwards may; `commit(n)` keeps the first n of the uncommitted
    rows and drops the others. Only committed rows are part of the sequence. Forwards put the target's hidden states of
    the rows into `hidden`, if that is set on a cache without rows. `expected_rows` tells how many rows there will
    probably be, for a cache that makes room for them at once.
    """

    hidden: HiddenRows | None
    expected_rows: int

    @property
    def num_committed(self) -> int: ...

    @property
    def num_uncommitted(self) -> int: ...

    def commit(self, num_rows: int) -> None:
        """Keep the first `num_rows` uncommitted rows, drop the rest. Raises CacheStateError if there are fewer."""
        ...

    def rollback(self) -> None:
        """Drop all uncommitted rows; the same as commit(0)."""
        ...

    @property
    def num_settled(self) -> int:
        """The committed rows that are in memory: all but those that still have to be run again."""
        ...

    @property
    def needs_state(self) -> bool:
        """Whether what layers hold of each row is not all there is to them. What the others hold, as behind a sliding
        window or in a recurrent state, is known of the last settled row only."""
        ...

    def read_rows(self, start: int, end: int) -> Sequence[mx.array]:
        """What the layers that keep every row hold of the settled rows `start` to `end`: arrays [1, H, n, D]."""
        ...

    def read_state(self) -> State:
        """What the other layers hold after the last settled row. Raises CacheStateError if rows are uncommitted."""
        ...

    def restore(self, num_rows: int, rows: Sequence[Sequence[mx.array]], state: State) -> None:
        """Make a fresh cache one of `num_rows` committed rows, with memory of its own.

        `rows` are what `read_rows` gave, piece by piece from the first row on; `state` is what `read_state` gave after
        the last of them, and is the cache's from then on. Raises CacheStateError if the cache is not fresh.
        """
        ...


class KeyValueBuffer:
    """Keys and values of one layer by position, for full attention or a sliding window.

    Rows lie in order of position from `first` on. A buffer holds no length: what lies beyond the sequence's end is
    garbage that the next write replaces, so forgetting rows costs nothing. With a window, rows that no later row can
    see are let go, but only on `trim`, which is told what is certain: rows at risk of being dropped never push out
    rows that would then be needed again.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.first = 0
        self.keys: mx.array | None = None  # [1, H, capacity, D]
        self.values: mx.array | None = None  # [1, H, capacity, D']

    def write(self, position: int, keys: mx.array, values: mx.array) -> None:
        """Store rows [1, H, n, D] at `position` and after."""
        start = position - self.first
        end = start + keys.shape[2]
        to_keys, to_values = self.reserve(position + keys.shape[2], keys, values)
        to_keys[..., start:end, :] = keys
        to_values[..., start:end, :] = values

    def reserve(self, end: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The buffers, with room for rows up to position `end`; a new one is for rows like `keys` and `values`."""
        self.keys = _with_capacity(self.keys, end - self.first, keys)
        self.values = _with_capacity(self.values, end - self.first, values)
        return self.keys, self.values

    def take(self, end: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """As `reserve`, and ours no more: a kernel writes in place what nobody else holds. It gives back what to hold
        from then on."""
        taken = self.reserve(end, keys, values)
        self.keys = self.values = None
        return taken

    def read(self, start: int, end: int) -> tuple[mx.array, mx.array]:
        """Keys and values [1, H, end - start, D] of the positions from `start` up to `end`."""
        if self.keys is None or self.values is None or start < self.first:
            raise CacheStateError(f"rows from {start} on are asked for, but rows before {self.first} are gone")
        rows = slice(start - self.first, end - self.first)
        return self.keys[..., rows, :], self.values[..., rows, :]

    def read_visible(self, end: int) -> tuple[mx.array, mx.array]:
        """Keys and values of the positions before `end` that a row at `end` or later can see."""
        return self.read(self.first_visible(end), end)

    def restore(self, end: int, keys: Sequence[mx.array], values: Sequence[mx.array]) -> None:
        """Hold copies of these rows, piece after piece [1, H, n, D], which go up to position `end`."""
        self.first = end - sum(piece.shape[2] for piece in keys)
        self.keys, self.values = joined_with_room(keys), joined_with_room(values)

    def first_visible(self, position: int) -> int:
        """The first position that a row at `position` attends to."""
        return 0 if self.window is None else max(0, position - self.window + 1)

    def trim(self, end: int) -> None:
        """Let go of rows that no row at `end` or later can see, once enough have gathered to be worth a copy."""
        visible = self.first_visible(end)
        if self.keys is None or self.values is None or visible - self.first < _GROWTH_ROWS:
            return
        self.keys, self.values = (mx.contiguous(part) for part in self.read_visible(end))
        self.first = visible


class RowCount:
    """How many rows there are of a sequence whose rows lie by position, so that forgetting them is to count fewer."""

    def __init__(self) -> None:
        self.num_committed = 0
        self.num_uncommitted = 0
        self.hidden: HiddenRows | None = None
        self.expected_rows = 0

    @property
    def end(self) -> int:
        """The position of the next row."""
        return self.num_committed + self.num_uncommitted

    @property
    def num_settled(self) -> int:
        return self.num_committed

    def extend(self, num_rows: int) -> None:
        """Count rows that a forward wrote to every layer."""
        self.num_uncommitted += num_rows

    def commit(self, num_rows: int) -> None:
        check_commit(num_rows, self.num_uncommitted)
        if self.hidden is not None:
            self.hidden.commit(num_dropped=self.num_uncommitted - num_rows)
        self.num_committed += num_rows
        self.num_uncommitted = 0

    def rollback(self) -> None:
        self.commit(0)


class RowCache(RowCount):
    """The rows of one sequence as key-value buffers, one a layer."""

    def __init__(self, windows: Sequence[int | None]) -> None:
        super().__init__()
        self.layers = [KeyValueBuffer(window) for window in windows]

    @property
    def arrays(self) -> list[mx.array]:
        """What must be evaluated for the rows to be in memory."""
        return [part for layer in self.layers for part in (layer.keys, layer.values) if part is not None]

    @property
    def row_bytes(self) -> int:
        """What a row takes of the memory. Of a cache that has seen one."""
        return sum(part.nbytes // int(part.shape[2]) for part in self.arrays)

    def commit(self, num_rows: int) -> None:
        super().commit(num_rows)
        for layer in self.layers:
            layer.trim(self.num_committed)

    @property
    def needs_state(self) -> bool:
        return any(layer.window is not None for layer in self.layers)

    def read_rows(self, start: int, end: int) -> list[mx.array]:
        return [part for layer in self.layers if layer.window is None for part in layer.read(start, end)]

    def read_state(self) -> State:
        """Of each layer with a window the keys and values that later rows see."""
        check_settled(self)
        return [layer.read_visible(self.num_committed) for layer in self.layers if layer.window is not None]

    def restore(self, num_rows: int, rows: Sequence[Sequence[mx.array]], state: State) -> None:
        check_fresh(self)
        pieces, visible = iter(zip(*rows, strict=True)), iter(state or ())
        for layer in self.layers:
            if layer.window is None:
                layer.restore(num_rows, next(pieces), next(pieces))
            else:
                keys, values = next(visible)
                layer.restore(num_rows, [keys], [values])
        self.num_committed = num_rows
        mx.eval(self.arrays)


def check_settled(cache: SequenceCache) -> None:
    """Raises CacheStateError if rows are uncommitted."""
    if cache.num_uncommitted:
        raise CacheStateError(f"the state is asked for, but {cache.num_uncommitted} rows are uncommitted")


def check_fresh(cache: SequenceCache) -> None:
    """Raises CacheStateError if the cache holds rows."""
    if cache.num_committed or cache.num_uncommitted:
        raise CacheStateError(f"rows are lent to a cache that has {cache.num_committed + cache.num_uncommitted}")


def joined_with_room(pieces: Sequence[mx.array]) -> mx.array:
    """A new buffer with copies of the rows of all pieces [1, H, n, D], and room for more."""
    num_rows = sum(piece.shape[2] for piece in pieces)
    like = pieces[0]
    room = mx.zeros((*like.shape[:2], _GROWTH_ROWS - num_rows % _GROWTH_ROWS, like.shape[3]), dtype=like.dtype)
    return mx.concatenate([*pieces, room], axis=2)


def check_commit(num_rows: int, num_uncommitted: int) -> None:
    """Raises CacheStateError unless that many uncommitted rows are there."""
    if not 0 <= num_rows <= num_uncommitted:
        raise CacheStateError(f"{num_rows} rows to commit, {num_uncommitted} uncommitted")


def capacity_for(num_rows: int, capacity: int) -> int:
    """The rows that a buffer of `capacity` should have room for: more by half if it is too small, so that copying stays
    amortised."""
    if capacity >= num_rows:
        return capacity
    wanted = max(num_rows, capacity + capacity // 2)
    return -(-wanted // _GROWTH_ROWS) * _GROWTH_ROWS


def _with_capacity(buffer: mx.array | None, num_rows: int, like: mx.array) -> mx.array:
    """The buffer, grown if it has no room for `num_rows` rows."""
    capacity = 0 if buffer is None else int(buffer.shape[2])
    num_new = capacity_for(num_rows, capacity) - capacity
    if buffer is not None and not num_new:
        return buffer
    new = mx.zeros((*like.shape[:2], num_new, like.shape[3]), dtype=like.dtype)
    return new if buffer is None else mx.concatenate([buffer, new], axis=2)
