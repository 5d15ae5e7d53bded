"""The one small interface behind which both ways of running a target sit. Knows no sampling and no scheduling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mtplx.engine.cache import SequenceCache
from mtplx.engine.types import Logits


@dataclass(frozen=True)
class Rows:
    """What one sequence puts into a forward: `tokens` follow the rows its cache holds.

    The last `num_logits` rows go through the output head.
    """

    cache: SequenceCache
    tokens: Sequence[int]
    num_logits: int


class Target(Protocol):
    """A model that scores rows of many sequences at once. Used from one thread only."""

    @property
    def way(self) -> Literal["rows", "sequential"]: ...

    def new_cache(self) -> SequenceCache: ...

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        """Logits [num_logits, V] for each entry of the batch, which names no cache twice.

        Appends the rows to the caches, uncommitted. After a forward that raises, its caches are of no further use.
        """
        ...
