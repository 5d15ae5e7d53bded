"""Rows lent to texts that begin as others did, so that nothing is forwarded twice.

Knows what a fresh cache can be given and what a used one leaves behind. Knows no scheduler, and no disk but through the
store. Used from the thread that uses MLX.
"""

from collections.abc import Sequence
from pathlib import Path

from mtplx.engine.cache import SequenceCache
from mtplx.engine.prefix.node import copied_state
from mtplx.engine.prefix.store import PrefixStore
from mtplx.engine.prefix.tree import PrefixTree


class PrefixCache:
    """Committed rows of texts, for the caches of one target. They are lent as they are: no bit of an answer changes.

    Where all layers keep every row, any beginning of a text can be lent. Where some don't, as with sliding windows or
    recurrent states, what these hold is copied whenever a text is banked, and texts are lent at those places only.

    Args:
        budget_bytes: for rows and states, over all salts. With 0 nothing is kept.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0
        self._budget_bytes = budget_bytes
        self._tree = PrefixTree(budget_bytes)

    @property
    def num_bytes(self) -> int:
        """What rows and states take; never more than the budget."""
        return self._tree.num_bytes

    @property
    def num_entries(self) -> int:
        """Runs of tokens in the tree."""
        return self._tree.num_nodes

    @property
    def num_evicted(self) -> int:
        """How many runs, or states where there are such, have gone to make room."""
        return self._tree.num_evicted

    def borrow(self, tokens: Sequence[int], cache: SequenceCache, salt: str = "") -> int:
        """Give a fresh cache the rows of the longest known beginning of `tokens`, committed; how many these are.

        The last token gets none: its row is what the first logits come from. Only what was banked with the same `salt`
        is known. The rows are copies. Raises CacheStateError if the cache holds rows already.
        """
        if not self._budget_bytes:
            return 0
        self.num_queried_tokens += len(tokens)
        match = self._tree.match(tuple(tokens[:-1]), salt)
        if cache.needs_state:
            match = match.up_to_a_state()
        if not match.path:
            return 0
        last = match.path[-1]
        cache.restore(match.num_tokens, match.rows, copied_state(last.state) if cache.needs_state else None)
        self._tree.use(last)
        self.num_hit_tokens += match.num_tokens
        return match.num_tokens

    def bank(self, tokens: Sequence[int], cache: SequenceCache, salt: str = "") -> None:
        """Keep copies of the cache's committed rows, which are those of the first of `tokens`.

        Rows that are known already are not copied again. Raises CacheStateError if rows are uncommitted and the cache
        has layers that don't keep every row.
        """
        num_rows = cache.num_settled
        if self._budget_bytes and num_rows:
            state = cache.read_state() if cache.needs_state else None
            self._tree.add(tuple(tokens[:num_rows]), salt, cache.read_rows, state)

    def save(self, folder: Path, model: str, budget_bytes: int) -> None:
        """Write what was used last to a folder, rows and states of at most that many bytes.

        `model` names the very weights and the way they run. Failures are logged.
        """
        PrefixStore(folder, model).save(self._tree, budget_bytes)

    def load(self, folder: Path, model: str) -> None:
        """Start with what was saved for this model, before anything is banked. Failures are logged."""
        PrefixStore(folder, model).load(self._tree, self._budget_bytes)
