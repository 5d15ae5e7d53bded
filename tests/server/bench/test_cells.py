"""The cells of a benchmark and their turns."""

from mtplx.engine.types import PLAIN
from mtplx.server.bench.cells import Cell, in_turn, make_cells


def test_every_drafter_meets_every_depth_at_every_temperature_beside_plain_decoding() -> None:
    assert make_cells(["a", "b"], [3, "auto"], [0.0, 0.7]) == [
        cell
        for temperature in (0.0, 0.7)
        for cell in (
            Cell(PLAIN, 0, temperature),
            *(Cell(drafter, depth, temperature) for drafter in ("a", "b") for depth in (3, "auto")),
        )
    ]


def test_depth_0_and_no_drafter_are_plain_decoding_which_is_there_once() -> None:
    assert make_cells(["a", PLAIN], [0, 3], [0.0]) == [Cell(PLAIN, 0, 0.0), Cell("a", 3, 0.0)]


def test_in_as_many_turns_as_there_are_cells_each_has_each_place_once() -> None:
    cells = make_cells(["a"], [1, 2, 3], [0.0])
    turns = [in_turn(cells, turn) for turn in range(len(cells))]
    assert all(set(places) == set(cells) for places in zip(*turns, strict=True))
    assert all(set(turn) == set(cells) for turn in turns)
