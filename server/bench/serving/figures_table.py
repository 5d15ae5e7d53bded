"""A load's figures as a table for the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from mtplx.server.bench.serving.figures import Figures, Percentiles

_NUMBERS = (
    *("requests", "failed", "prompt\ntokens", "output\ntokens", "tokens\na second", "tokens\na chunk"),
    *("first text, ms\n50 / 95 / 99 %", "between chunks, ms\n50 / 95 / 99 %"),
)


def figures_table(all_figures: Sequence[Figures]) -> Table:
    """A line for each server under each load; the servers of a load stand together."""
    table = Table(box=SIMPLE, header_style="")
    for name in ("load", "server"):
        table.add_column(name, no_wrap=True)
    for name in _NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    for figures in all_figures:
        table.add_row(*_line(figures))
    return table


def _line(figures: Figures) -> list[str]:
    return [
        figures.arrival,
        figures.server,
        str(figures.num_requests),
        str(figures.num_failed),
        f"{figures.prompt_tokens:.0f}",
        f"{figures.output_tokens:.0f}",
        f"{figures.tokens_per_s:.1f}",
        f"{figures.tokens_per_chunk:.2f}",
        _percentiles(figures.first_text_ms, digits=0),
        _percentiles(figures.between_ms, digits=1),
    ]


def _percentiles(times: Percentiles, digits: int) -> str:
    return " / ".join("-" if value is None else f"{value:.{digits}f}" for value in (times.p50, times.p95, times.p99))
