"""A benchmark's summary as a picture: speedup against depth, a panel for each category.

Needs matplotlib, which the extra `bench` brings.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mtplx.engine.types import AUTO
from mtplx.server.bench.statistics import Speedup
from mtplx.server.bench.summary import Summary

LineStyle = Literal["-", "--", ":", "-."]
Looks = Mapping[tuple[str, float], tuple[str, LineStyle]]  # colour and style by drafter and temperature

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by all (Okabe and Ito 2008)
_STYLES: tuple[LineStyle, ...] = ("-", "--", ":", "-.")
_MOST_COLUMNS = 4
_PANEL_INCHES = (3.4, 3.0)


def save_picture(summaries: Sequence[Summary], path: Path, title: str) -> None:
    """Write a PNG to `path`: a line for each drafter and temperature, intervals as bands, depth "auto" at the right."""
    make_figure(summaries, title).savefig(path, format="png", dpi=150)


def make_figure(summaries: Sequence[Summary], title: str) -> Figure:
    categories = list(dict.fromkeys(summary.category for summary in summaries))
    num_columns = min(len(categories), _MOST_COLUMNS)
    num_rows = math.ceil(len(categories) / num_columns)
    width, height = max(2, num_columns) * _PANEL_INCHES[0], num_rows * _PANEL_INCHES[1] + 1.2
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = list(figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False).flat)
    drafted = [summary for summary in summaries if not summary.cell.is_plain]
    places = _places(drafted)
    for axes, category in zip(panels, categories, strict=False):
        _draw_panel(axes, category, [each for each in drafted if each.category == category], places, _looks(drafted))
    for axes in panels[len(categories) :]:
        axes.set_visible(False)
    for axes in panels[::num_columns]:
        axes.set_ylabel("times as fast as plain")
    figure.suptitle(title, fontsize="medium")
    figure.legend(handles=_legend(_looks(drafted)), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _places(summaries: Sequence[Summary]) -> dict[int | str, int]:
    """Where each depth stands on the axis: in order, evenly spaced, depth 0 first, the engine's choice last."""
    depths = sorted({summary.cell.depth for summary in summaries if summary.cell.depth != AUTO})
    ordered: list[int | str] = [0, *depths]
    if any(summary.cell.depth == AUTO for summary in summaries):
        ordered.append("auto")
    return {depth: place for place, depth in enumerate(ordered)}


def _looks(summaries: Sequence[Summary]) -> Looks:
    drafters = sorted({summary.cell.drafter for summary in summaries})
    temperatures = sorted({summary.cell.temperature for summary in summaries})
    return {
        (drafter, temperature): (_COLOURS[row % len(_COLOURS)], _STYLES[column % len(_STYLES)])
        for row, drafter in enumerate(drafters)
        for column, temperature in enumerate(temperatures)
    }


def _draw_panel(
    axes: Axes, category: str, summaries: Sequence[Summary], places: Mapping[int | str, int], looks: Looks
) -> None:
    axes.axhline(1.0, color="0.4", linewidth=0.8)
    for number, ((drafter, temperature), look) in enumerate(looks.items()):
        ours = [each for each in summaries if (each.cell.drafter, each.cell.temperature) == (drafter, temperature)]
        fixed = [each for each in ours if each.cell.depth != AUTO]
        if fixed:
            _draw_line(axes, [places[each.cell.depth] for each in fixed], [each.speedup for each in fixed], look)
        aside = 0.12 * (number - (len(looks) - 1) / 2)  # points in one place would hide each other
        for each in ours:
            if each.cell.depth == AUTO:
                _draw_point(axes, places["auto"] + aside, each.speedup, look)
    axes.set_title(f"{category} ({summaries[0].num_prompts} prompts)", fontsize="small")
    axes.set_xticks(list(places.values()), [str(depth) for depth in places])
    axes.set_xlabel("depth")
    axes.tick_params(labelbottom=True, labelsize="small")
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Axes, places: Sequence[int], speedups: Sequence[Speedup], look: tuple[str, LineStyle]) -> None:
    """From plain decoding, which depth 0 is, over the fixed depths."""
    colour, style = look
    x, points = [0, *places], [Speedup(1.0, 1.0, 1.0), *speedups]
    axes.plot(x, [point.ratio for point in points], style, color=colour, marker="o", markersize=3.5)
    low, high = [point.low for point in points], [point.high for point in points]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _draw_point(axes: Axes, place: float, point: Speedup, look: tuple[str, LineStyle]) -> None:
    colour, style = look
    reach = [[point.ratio - point.low], [point.high - point.ratio]]
    filled = colour if style == _STYLES[0] else "white"
    axes.errorbar(place, point.ratio, reach, color=colour, fmt="D", mfc=filled, ms=5, capsize=3)


def _legend(looks: Looks) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, linestyle=style, marker="o", markersize=3.5, label=f"{drafter}, temperature {t:g}")
        for (drafter, t), (colour, style) in looks.items()
    ]
