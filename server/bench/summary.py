"""What the runs of a benchmark add up to: a line for each cell, over all prompts and by category. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from mtplx.engine.types import AUTO
from mtplx.server.bench.cells import Cell
from mtplx.server.bench.measuring import Run
from mtplx.server.bench.statistics import Speedup, speedup

ALL = "all"  # stands for the prompts of every category


@dataclass(frozen=True)
class Summary:
    """One cell over the prompts of one category. Times are in milliseconds, those of stages per round.

    `acceptance[i]` is the share of the drafts with a token at position i of which that token was accepted.
    """

    category: str
    cell: Cell
    num_prompts: int
    tokens_per_s: float
    speedup: Speedup
    tokens_per_round: float
    acceptance: tuple[float, ...]
    draft_ms: float
    verify_ms: float
    prefill_ms: float
    first_token_ms: float


def summarize(runs: Sequence[Run]) -> list[Summary]:
    """A summary of each cell for each category, in the order met; first over all, if there are several categories.

    There must be a run of plain decoding for each run, of the same prompt, repeat and temperature.
    """
    categories = dict.fromkeys(run.category for run in runs)
    by_category = {category: [run for run in runs if run.category == category] for category in categories}
    groups = {ALL: runs, **by_category} if len(categories) > 1 else by_category
    return [
        _summary(category, cell, group)
        for category, group in groups.items()
        for cell in sorted({run.cell for run in group}, key=_order)
    ]


def total_s(runs: Iterable[Run], cell: Cell) -> dict[str, float]:
    """Seconds that decoding each prompt took in the cell, by the prompt's id, over all repeats."""
    totals: dict[str, float] = defaultdict(float)
    for run in runs:
        if run.cell == cell:
            totals[run.prompt] += run.decode_s
    return totals


def _summary(category: str, cell: Cell, runs: Sequence[Run]) -> Summary:
    ours = [run for run in runs if run.cell == cell]
    plain_s, our_s = total_s(runs, cell.plain()), total_s(runs, cell)
    num_rounds, num_tokens = sum(run.num_rounds for run in ours), sum(len(run.tokens) for run in ours)
    drafted, accepted = _by_position(run.drafted_at for run in ours), _by_position(run.accepted_at for run in ours)
    return Summary(
        category=category,
        cell=cell,
        num_prompts=len(our_s),
        tokens_per_s=num_tokens / sum(our_s.values()),
        speedup=speedup([plain_s[prompt] for prompt in our_s], list(our_s.values())),
        tokens_per_round=num_tokens / num_rounds,
        acceptance=tuple(yes / all_ for yes, all_ in zip_longest(accepted, drafted, fillvalue=0)),
        draft_ms=1e3 * sum(run.draft_s for run in ours) / num_rounds,
        verify_ms=1e3 * sum(run.verify_s for run in ours) / num_rounds,
        prefill_ms=1e3 * sum(run.prefill_s for run in ours) / len(ours),
        first_token_ms=1e3 * sum(run.first_token_s for run in ours) / len(ours),
    )


def _by_position(counts: Iterable[Sequence[int]]) -> list[int]:
    return [sum(position) for position in zip_longest(*counts, fillvalue=0)]


def _order(cell: Cell) -> tuple[float, bool, str, bool, int]:
    """By temperature, plain decoding first, then by drafter and depth, the engine's choice last."""
    depth = 0 if cell.depth == AUTO else cell.depth
    return cell.temperature, not cell.is_plain, cell.drafter, cell.depth == AUTO, depth
