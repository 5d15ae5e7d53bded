"""Rows that texts begin with and need not forward again, each with its hidden state.

Knows caches and what they can be lent; knows nothing of who writes what.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.engine.cache import SequenceCache
from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.target import Target
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.training.states import forwarded
from mtplx.engine.types import HostStates


@dataclass(frozen=True)
class Begun:
    """The first rows of a text, to be lent to others that begin alike: `states` [n, D] are theirs."""

    rows: PrefixCache
    states: HostStates

    def lend(self, tokens: Sequence[int], cache: SequenceCache, hidden: HiddenRows) -> None:
        """To a fresh cache and what keeps its hidden states, as far as `tokens` are the same."""
        if num_rows := self.rows.borrow(tokens, cache):
            hidden.append(0, self.states[:num_rows])


def begun_as(tokens: Sequence[int], cache: SequenceCache) -> Begun | None:
    """What `cache`, which is of no more use, has of a text; None unless it kept the state of each row."""
    piece = None if cache.hidden is None else cache.hidden.take()
    if piece is None or piece.position:
        return None
    rows = PrefixCache(budget_bytes=sys.maxsize)
    rows.bank(tokens, cache)
    return Begun(rows, piece.states)


def begin(target: Target, tokens: Sequence[int]) -> Begun | None:
    """Forward the rows of a text's first tokens, by themselves."""
    return begun_as(tokens, forwarded(target, tokens))
