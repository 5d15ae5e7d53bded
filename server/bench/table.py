"""A benchmark's summary as tables for the terminal."""

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table

from mtplx.server.bench.summary import Summary

_MOST_POSITIONS = 6
_NUMBERS = ("tokens\na second", "speedup", "95 %\ninterval", "tokens\na round", "draft\nms", "verify\nms", "first\nms")


def make_tables(summaries: Sequence[Summary]) -> Group:
    """A table for each category, with a line for each of its summaries. Draft and verify times are of a round, "first"
    is the time to the first token."""
    by_category = groupby(summaries, lambda summary: summary.category)
    return Group(*(_table(category, list(group)) for category, group in by_category))


def _table(category: str, summaries: Sequence[Summary]) -> Table:
    title = f"{category}: {summaries[0].num_prompts} prompts"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE, header_style="")
    for name in ("drafter", "depth", "T"):
        table.add_column(name, no_wrap=True, min_width=5)
    for name in _NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("accepted, %,\nby position")
    for summary in summaries:
        table.add_row(*_line(summary))
    return table


def _line(summary: Summary) -> list[str]:
    cell, ratio = summary.cell, summary.speedup
    shares = [f"{100 * share:.0f}" for share in summary.acceptance]
    return [
        "plain" if cell.is_plain else cell.drafter,
        "" if cell.is_plain else str(cell.depth),
        f"{cell.temperature:g}",
        f"{summary.tokens_per_s:.1f}",
        "" if cell.is_plain else f"{ratio.ratio:.2f}",
        "" if cell.is_plain else f"{ratio.low:.2f}-{ratio.high:.2f}",
        f"{summary.tokens_per_round:.2f}",
        f"{summary.draft_ms:.2f}",
        f"{summary.verify_ms:.2f}",
        f"{summary.first_token_ms:.0f}",
        " ".join(shares[:_MOST_POSITIONS]) + (" …" if len(shares) > _MOST_POSITIONS else ""),
    ]
