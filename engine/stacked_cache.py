"""The rows of a sequence in one piece of memory for all layers, which are alike and keep every row.

One array where a cache with buffers for each layer has two a layer: native code that runs all layers at once takes it
and gives it back, and what that costs goes by the number of arrays. Knows how rows are stored, as `cache` does.
"""

from collections.abc import Sequence

import mlx.core as mx

from mtplx.engine.cache import RowCount, State, capacity_for, check_fresh
from mtplx.engine.errors import CacheStateError
from mtplx.kernels.row_buffers import join_rows, move_rows, read_rows


class StackedCache(RowCount):
    """Keys and values of each layer in turn, in a buffer as `row_buffers` has it. `row` is like one row of it."""

    needs_state = False

    def __init__(self, row: mx.array) -> None:
        super().__init__()
        self._row = row  # [2 L, H, 1, D]
        self.buffer: mx.array | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """What must be evaluated for the rows to be in memory."""
        return [] if self.buffer is None else [self.buffer]

    @property
    def row_bytes(self) -> int:
        """What a row takes of the memory."""
        return self._row.nbytes

    def take(self, num_rows: int) -> mx.array:
        """The buffer, with room for as many rows more, and ours no longer: a kernel writes in place what nobody else
        holds. It gives back what to hold from then on."""
        capacity = capacity_for(max(self.end + num_rows, self.expected_rows), self._capacity)
        if self.buffer is None:
            self.buffer = join_rows([self._row[..., :0, :]], capacity)
        elif capacity > self._capacity:
            self.buffer = move_rows(self.buffer, self.end, capacity)
        taken, self.buffer = self.buffer, None
        return taken

    @property
    def _capacity(self) -> int:
        return 0 if self.buffer is None else int(self.buffer.shape[2])

    def read_rows(self, start: int, end: int) -> list[mx.array]:
        if self.buffer is None:
            raise CacheStateError(f"rows from {start} on are asked for, but there are none")
        return [read_rows(self.buffer, start, end)]

    def read_state(self) -> State:
        return None

    def restore(self, num_rows: int, rows: Sequence[Sequence[mx.array]], state: State) -> None:
        check_fresh(self)
        self.buffer = join_rows([piece for [piece] in rows], capacity_for(max(num_rows + 1, self.expected_rows), 0))
        self.num_committed = num_rows
