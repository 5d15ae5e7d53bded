"""Committed rows of many texts, by what the texts begin with: a radix tree over tokens, within a budget of bytes.

Knows what is kept and what has to go first. Knows no cache and no model. Rows and states are copied on their way in, so
that nobody else writes what the tree holds.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import mlx.core as mx

from mtplx.engine.cache import State
from mtplx.engine.prefix.node import (
    Match,
    Node,
    Rows,
    arrays_of,
    copied,
    copied_state,
    cut,
    num_shared,
    num_state_bytes,
)

_LONGEST_RUN = 256  # tokens: what cutting a run in two copies, and what goes at once

ReadRows = Callable[[int, int], Sequence[mx.array]]  # of the rows from one place to another, [1, H, n, D] each


class PrefixTree:
    """Texts of different salts share nothing.

    A node stays while it is in use or has nodes after it. Where rows are all there is, whoever uses a node uses those
    before it too, and those later: what was used least recently has nothing after it. Where layers have a state, rows
    alone help nobody, and only the node is used whose state it is.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.num_bytes = 0
        self.num_nodes = 0
        self.num_evicted = 0
        self._budget_bytes = budget_bytes
        self._top = Node(key=None, parent=None)
        self._used: OrderedDict[Node, None] = OrderedDict()  # the least recently used first

    @property
    def used(self) -> list[Node]:
        """The nodes in use, the least recently used first."""
        return list(self._used)

    def match(self, tokens: tuple[int, ...], salt: str) -> Match:
        """The longest beginning of the text that is known."""
        path: list[Node] = []
        node, start, num_in_last = self._top.children.get(salt), 0, 0
        while node is not None and num_in_last == len(node.tokens) and start < len(tokens):
            node = node.children.get(tokens[start])
            if node is not None:
                num_in_last = num_shared(node.tokens, tokens[start : start + len(node.tokens)])
                start += num_in_last
                path.append(node)
        return Match(tuple(path), num_in_last)

    def add(self, tokens: tuple[int, ...], salt: str, read_rows: ReadRows, state: State) -> None:
        """Keep copies of a text's rows, of those that are not kept yet, and of the state after them, unless None.

        What was used least recently goes for it. Of rows that exceed the budget the first are kept, as many as fit;
        with a state, which they would be of no use without, none.
        """
        match = self.match(tokens, salt)
        new = _new_runs(tokens, match.num_tokens, read_rows)
        if state is not None and _num_bytes(match, new, state) > self._budget_bytes:
            return
        node = self._end_of(match, salt) if new or state is not None else match.path[-1]
        added = []
        for run, rows in new:
            node = self.attach(node, run, rows)
            added.append(node)
        if state is not None and node.state is None:
            node.state = copied_state(state)
            self.num_bytes += num_state_bytes(node.state)
        self.use(node)
        self._shrink()
        # Only now, when there is room: what had to go again has no rows, and took no memory.
        mx.eval([each.rows for each in added], arrays_of(node.state))

    def attach(self, parent: Node, tokens: tuple[int, ...], rows: Rows, state: State = None) -> Node:
        """A new node after `parent`, which keeps these very arrays."""
        node = Node(tokens[0], parent, tokens, rows, state)
        parent.children[node.key] = node
        self.num_bytes += node.num_bytes
        self.num_nodes += 1
        return node

    def salted(self, salt: str) -> Node:
        """The node before all texts of this salt."""
        return self._top.children.setdefault(salt, Node(salt, self._top))

    def use(self, node: Node) -> None:
        """Note that the node is of use now."""
        for each in node.lineage() if node.state is None else (node,):
            self._used[each] = None
            self._used.move_to_end(each)

    def prune(self, node: Node) -> None:
        """Remove the node, and then those before it, as far as nothing keeps them."""
        while node.parent is not None and not node.children and node not in self._used:
            del node.parent.children[node.key]
            self.num_bytes -= node.num_row_bytes
            self.num_nodes -= bool(node.tokens)
            node.rows = ()
            node = node.parent

    def _end_of(self, match: Match, salt: str) -> Node:
        """The node that ends where the match does; a run that goes on from there is cut in two."""
        if not match.path:
            return self.salted(salt)
        return match.path[-1] if match.is_whole else self._cut(match.path[-1], match.num_in_last)

    def _cut(self, node: Node, num_tokens: int) -> Node:
        """The first tokens of a run as a node of their own, before the rest."""
        assert node.parent is not None
        first = Node(node.key, node.parent, node.tokens[:num_tokens], _copied_part(node.rows, 0, num_tokens))
        node.rows = _copied_part(node.rows, num_tokens, len(node.tokens))
        node.tokens = node.tokens[num_tokens:]
        node.parent.children[node.key] = first
        node.key, node.parent = node.tokens[0], first
        first.children[node.key] = node
        self.num_nodes += 1
        return first

    def _shrink(self) -> None:
        while self.num_bytes > self._budget_bytes:
            node, _ = self._used.popitem(last=False)
            self.num_evicted += 1
            self.num_bytes -= num_state_bytes(node.state)
            node.state = None
            self.prune(node)


def _new_runs(tokens: tuple[int, ...], start: int, read_rows: ReadRows) -> list[tuple[tuple[int, ...], Rows]]:
    """What comes from `start` on: runs and copies of their rows, yet to be evaluated."""
    runs = []
    for begin in range(start, len(tokens), _LONGEST_RUN):
        run = tokens[begin : begin + _LONGEST_RUN]
        runs.append((run, tuple(copied(part) for part in read_rows(begin, begin + len(run)))))
    return runs


def _num_bytes(match: Match, new: Sequence[tuple[tuple[int, ...], Rows]], state: State) -> int:
    """Of a text from its first row to its state."""
    pieces = [*match.rows, *(rows for _, rows in new)]
    return sum(part.nbytes for rows in pieces for part in rows) + num_state_bytes(state)


def _copied_part(rows: Rows, start: int, end: int) -> Rows:
    part = tuple(copied(view) for view in cut(rows, start, end))
    mx.eval(part)
    return part
