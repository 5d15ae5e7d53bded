"""A run of tokens in the tree of texts, with the rows of its tokens. Knows no budget and no other runs' use."""

import copy
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from mtplx.engine.cache import State

Rows = tuple[mx.array, ...]  # of each layer that keeps every row, keys and values [1, H, n, D]


@dataclass(eq=False)
class Node:
    """A run of tokens that follows its parent's.

    `state` is what the other layers hold after the last token, where that is known. Nodes without tokens stand for the
    salts, before all texts.
    """

    key: Hashable  # by which the parent knows it: the first token, or a salt
    parent: "Node | None"
    tokens: tuple[int, ...] = ()
    rows: Rows = ()
    state: State = None
    children: dict[Hashable, "Node"] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return self.num_row_bytes + num_state_bytes(self.state)

    @property
    def num_row_bytes(self) -> int:
        return sum(part.nbytes for part in self.rows)

    def lineage(self) -> "Iterator[Node]":
        """The node and those with tokens before it, the nearest first."""
        node: Node | None = self
        while node is not None and node.tokens:
            yield node
            node = node.parent


@dataclass(frozen=True)
class Match:
    """What a text shares with earlier ones: the runs of `path`, but of the last one only `num_in_last` tokens."""

    path: tuple[Node, ...] = ()
    num_in_last: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(len(node.tokens) for node in self.path[:-1]) + self.num_in_last

    @property
    def is_whole(self) -> bool:
        """Whether it ends where a run ends."""
        return not self.path or self.num_in_last == len(self.path[-1].tokens)

    @property
    def rows(self) -> list[Rows]:
        """Piece by piece; they are the tree's own."""
        if self.is_whole:
            return [node.rows for node in self.path]
        return [*(node.rows for node in self.path[:-1]), cut(self.path[-1].rows, 0, self.num_in_last)]

    def up_to_a_state(self) -> "Match":
        """As much of it as ends where the state is known."""
        path = self.path if self.is_whole else self.path[:-1]
        while path and path[-1].state is None:
            path = path[:-1]
        return Match(path, len(path[-1].tokens) if path else 0)


def cut(rows: Sequence[mx.array], start: int, end: int) -> Rows:
    """The rows from `start` to `end`, as views."""
    return tuple(part[..., start:end, :] for part in rows)


def copied(array: mx.array) -> mx.array:
    """The values in memory of their own, and no more memory than they need, once evaluated.

    `mx.contiguous` would share memory that is nearly of the right size.
    """
    return mx.concatenate([array, array[:0]]) if array.ndim else array


def copied_state(state: State) -> State:
    """The same state, of which nobody else holds a part that can change."""
    return tree_map(lambda part: copied(part) if isinstance(part, mx.array) else copy.deepcopy(part), state)


def arrays_of(state: State) -> list[mx.array]:
    leaves = cast(list[tuple[str, Any]], tree_flatten(state))  # without a destination it is a list
    return [leaf for _, leaf in leaves if isinstance(leaf, mx.array)]


def num_state_bytes(state: State) -> int:
    return sum(part.nbytes for part in arrays_of(state))


def num_shared(some: tuple[int, ...], others: tuple[int, ...]) -> int:
    """How many tokens both begin with."""
    if some == others:
        return len(some)
    pairs = enumerate(zip(some, others, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(some), len(others)))
