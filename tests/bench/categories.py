"""Every category of Spec-Bench (Xia et al., 2401.07851): what the drafter `auto` is worth there, greedy and sampled.

Knows the categories and what is demanded; measures nothing itself.
"""

from collections.abc import Sequence
from statistics import mean

from mtplx.server.bench.cells import Cell
from mtplx.server.bench.measuring import Run
from mtplx.server.bench.summary import Summary, summarize
from tests.bench.row import Row

MEAN_MUST = {0.0: 1.3, 0.7: 1.12}  # by temperature, of the categories' speedups
LEAST_MUST = {0.0: 1.03}  # of each


def category_rows(runs: Sequence[Run], cell: Cell) -> list[Row]:
    """Of runs of the cell and of plain decoding at its temperature: a row for each category, and their mean."""
    temperature = cell.temperature
    of_each = [each for each in summarize(runs) if each.cell == cell and each.category != "all"]
    ratio = mean(each.speedup.ratio for each in of_each)
    return [
        *(Row(_name(each), each.speedup.ratio, "x", LEAST_MUST.get(temperature)) for each in of_each),
        Row(
            f"Spec-Bench, {len(of_each)} categories, temperature {temperature:g}: mean", ratio, "x",
            MEAN_MUST[temperature],
        ),
    ]  # fmt: skip


def _name(summary: Summary) -> str:
    low, high, rate = summary.speedup.low, summary.speedup.high, summary.tokens_per_round
    return f"  {summary.category} ({low:.2f} to {high:.2f}; {rate:.2f} tokens a round)"
