"""The ways of decoding that a benchmark compares, and the order in which they take turns. Knows no model, no prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.engine.types import PLAIN, Depth


@dataclass(frozen=True)
class Cell:
    """A way of decoding. Plain decoding has the drafter "none" and depth 0."""

    drafter: str
    depth: Depth
    temperature: float

    @property
    def is_plain(self) -> bool:
        return self.drafter == PLAIN

    def plain(self) -> "Cell":
        """Plain decoding at the same temperature: what this cell is measured against."""
        return Cell(PLAIN, 0, self.temperature)

    def __str__(self) -> str:
        way = "plain decoding" if self.is_plain else f"{self.drafter} at depth {self.depth}"
        return f"{way}, temperature {self.temperature:g}"


def make_cells(drafters: Sequence[str], depths: Sequence[Depth], temperatures: Sequence[float]) -> list[Cell]:
    """Plain decoding at each temperature, followed by each drafter at each depth; depth 0 is plain decoding itself."""
    cells = []
    for temperature in temperatures:
        cells.append(Cell(PLAIN, 0, temperature))
        for drafter in drafters:
            cells += [Cell(drafter, depth, temperature) for depth in depths if depth != 0 and drafter != PLAIN]
    return list(dict.fromkeys(cells))


def in_turn(cells: Sequence[Cell], turn: int) -> list[Cell]:
    """The cells in the order of this turn: each goes first once in as many turns as there are cells.

    A machine that grows slower or faster meanwhile then favours none of them.
    """
    first = turn % len(cells)
    return [*cells[first:], *cells[:first]]
