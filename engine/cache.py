"""What a sequence remembers of the rows it has been through, and how it forgets.

Knows how each kind of layer appends, keeps and drops rows. Knows no model and no token's meaning.
"""

from typing import Protocol


class SequenceCache(Protocol):
    """The rows of one sequence, over all layers.

    A forward appends rows *uncommitted*, and several forwards may; `commit(n)` keeps the first n of the uncommitted
    rows and drops the others. Only committed rows are part of the sequence.
    """

    @property
    def num_committed(self) -> int: ...

    @property
    def num_uncommitted(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    def commit(self, num_rows: int) -> None:
        """Keep the first `num_rows` uncommitted rows, drop the rest. Raises CacheStateError if there are fewer."""
        ...

    def rollback(self) -> None:
        """Drop all uncommitted rows; the same as commit(0)."""
        ...
