"""The picture and the tables of a benchmark."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from mtplx.server.bench.picture import make_figure, save_picture
from mtplx.server.bench.summary import Summary, summarize
from mtplx.server.bench.table import make_tables
from tests.server.bench.runs import GREEDY, drafted, run


@pytest.fixture
def summaries() -> list[Summary]:
    times_s = {
        GREEDY: 6.0,
        drafted(3): 3.0,
        drafted(8): 2.0,
        drafted("auto"): 1.5,
        replace(GREEDY, temperature=0.7): 8.0,
    }
    times_s |= {drafted(3, temperature=0.7): 5.0}
    counts = {"drafted_at": (4,) * 9, "accepted_at": (3,) * 9}
    return summarize([run(cell, seconds, **({} if cell.is_plain else counts)) for cell, seconds in times_s.items()])


def curves(figure: Figure) -> list[list[float]]:
    """The heights of all lines of more than one point and not level."""
    lines = [list(line.get_ydata()) for axes in figure.axes for line in axes.lines]
    return [heights for heights in lines if len(set(heights)) > 1]


def test_speedups_stand_over_their_depths_and_begin_at_1(summaries: list[Summary]) -> None:
    figure = make_figure(summaries, "title")
    assert curves(figure) == [[1.0, 2.0, 3.0], [1.0, 1.6]]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "3", "8", "auto"]


def test_the_engines_choice_is_a_point_of_its_own(summaries: list[Summary]) -> None:
    [axes] = make_figure(summaries, "title").axes
    [point] = [line for line in axes.lines if line.get_marker() == "D"]
    assert list(point.get_ydata()) == [4.0]
    assert round(point.get_xdata()[0]) == 3


def test_there_is_a_panel_for_all_prompts_and_for_each_category() -> None:
    cells = (GREEDY, drafted())
    runs = [run(cell, prompt=category, category=category) for category in ("qa", "copy") for cell in cells]
    figure = make_figure(summarize(runs), "title")
    assert [axes.get_title() for axes in figure.axes] == ["all (2 prompts)", "qa (1 prompts)", "copy (1 prompts)"]


def test_the_picture_is_a_png(summaries: list[Summary], tmp_path: Path) -> None:
    save_picture(summaries, tmp_path / "picture", "title")
    assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")


def test_a_table_has_a_line_for_each_cell(summaries: list[Summary]) -> None:
    console = Console(width=150)
    with console.capture() as captured:
        console.print(make_tables(summaries))
    lines = [line.split() for line in captured.get().splitlines() if line.strip()]
    words = " ".join(lines[6])
    assert len(lines) == 4 + len(summaries)
    assert words == "ngram 8 0 2.0 3.00 3.00-3.00 1.00 50.00 250.00 500 75 75 75 75 75 75 …"
