"""Whether speculation pays: the drafter `auto`, choosing its depth, beside plain decoding on several kinds of text.

Run it with nothing else running: it takes a quarter of an hour. SPEC_BENCH names the questions of Spec-Bench
(question.jsonl, Xia et al. 2401.07851); the copy-heavy prompts are the built-in ones. A speedup is the ratio of total
decoding times, plain over auto, prefill left out, at temperature 0 where nothing else is said; the two take turns. With
JSON=path the rows are written there too. Exits with 1 when a row falls short.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtplx import EngineSession, GenerationConfig
from mtplx.engine.errors import InvalidRequestError
from mtplx.server.bench.cells import Cell, make_cells
from mtplx.server.bench.exactness import pairs_to_compare
from mtplx.server.bench.measuring import Plan, Run, encode_prompt, measure
from mtplx.server.bench.progress import Progress
from mtplx.server.bench.prompts import BUILT_IN, Prompt, choose_prompts, read_prompts
from mtplx.server.bench.summary import summarize
from tests.bench.categories import MEAN_MUST, category_rows
from tests.bench.row import Row, finish

NUM_TOKENS = 128
NUM_QUESTIONS = 20
NUM_OF_EACH = 10  # questions, where all categories are asked
AUTO = Cell("auto", "auto", 0.0)
BY_TEMPERATURE = [Cell("auto", "auto", temperature) for temperature in MEAN_MUST]
EXACTNESS_TOKENS = 48
EXACTNESS_PROMPTS = 2


@dataclass(frozen=True)
class Bar:
    """What the drafter must be worth on the prompts of a category; the closer that is to 1, the more repeats."""

    category: str
    built_in: bool
    must: float
    num_repeats: int

    def prompts(self, spec_bench: Sequence[Prompt]) -> list[Prompt]:
        if self.built_in:
            return choose_prompts(read_prompts(BUILT_IN), [self.category])
        return choose_prompts(spec_bench, [self.category], NUM_QUESTIONS)

    @property
    def name(self) -> str:
        return f"{'built-in' if self.built_in else 'Spec-Bench'}: {self.category}"


BARS = (
    Bar("copy", True, 2.0, 2),
    Bar("summarization", False, 1.3, 1),
    Bar("rag", False, 1.3, 1),
    Bar("writing", False, 0.97, 3),
    Bar("qa", False, 0.97, 3),
)


def bar_rows(bar: Bar, runs: Sequence[Run]) -> list[Row]:
    plain, auto = summarize(runs)
    speedup = auto.speedup
    return [
        Row(f"{bar.name}, {auto.num_prompts} prompts: plain decoding", plain.tokens_per_s, "tok/s"),
        Row("  auto", auto.tokens_per_s, "tok/s"),
        Row("  auto: tokens a round", auto.tokens_per_round, "tokens"),
        Row("  95 % interval of the speedup, low end", speedup.low, "x"),
        Row("  95 % interval of the speedup, high end", speedup.high, "x"),
        Row(f"{bar.name}: auto beside plain decoding", speedup.ratio, "x", bar.must),
    ]


def exact_row(name: str, pairs: Sequence[tuple[Run, Run]]) -> Row:
    """Of runs beside those of plain decoding: how many of them have the same tokens."""
    equal = sum(run.tokens == plain.tokens for run, plain in pairs)
    return Row(f"exact: {len(pairs)} {name}", 100 * equal / len(pairs), "%", 100)


def plans(session: EngineSession, spec_bench: Sequence[Prompt]) -> tuple[list[Plan], list[Plan], list[Plan]]:
    """One for each bar, one for each temperature over all categories, and those for exactness: every drafter and depth,
    greedy, and sampled with shared noise."""
    timed = [
        Plan(
            [encode_prompt(session.model, prompt, NUM_TOKENS) for prompt in bar.prompts(spec_bench)],
            [AUTO.plain(), AUTO],
            NUM_TOKENS,
            bar.num_repeats,
        )
        for bar in BARS
    ]
    asked = [
        encode_prompt(session.model, prompt, NUM_TOKENS) for prompt in choose_prompts(spec_bench, limit=NUM_OF_EACH)
    ]
    by_temperature = [Plan(asked, [cell.plain(), cell], NUM_TOKENS) for cell in BY_TEMPERATURE]
    few = timed[0].prompts[:EXACTNESS_PROMPTS]
    greedy = Plan(few, make_cells(["ngram", "self", "head", "auto"], [1, 3, 8, "auto"], [0.0]), EXACTNESS_TOKENS)
    sampled = make_cells(["ngram", "self", "head", "auto"], [1, 3, 8, "auto"], [0.7])
    return timed, by_temperature, [greedy, replace(greedy, cells=sampled, acceptance="coupled")]


def runs_of(session: EngineSession, plan: Plan, progress: Progress) -> list[Run]:
    return [run for group in measure(session, plan, progress.advance) for run in group]


def main() -> int:
    path = os.environ.get("SPEC_BENCH")
    if not path:
        print("SPEC_BENCH must name the questions of Spec-Bench: a question.jsonl", file=sys.stderr)
        return 2
    rows: list[Row] = []

    def tell(measured: Sequence[Row]) -> None:
        rows.extend(measured)
        print(*measured, sep="\n", flush=True)

    try:
        spec_bench = read_prompts(Path(path))
        with EngineSession(GenerationConfig()) as session:
            timed, by_temperature, exact = plans(session, spec_bench)
            greedy: list[tuple[Run, Run]] = []  # plan by plan, for the same prompt may be decoded to other lengths
            with Progress(sum(plan.num_runs for plan in (*timed, *by_temperature, *exact))) as progress:
                for bar, plan in zip(BARS, timed, strict=True):
                    runs = runs_of(session, plan, progress)
                    tell(bar_rows(bar, runs))
                    greedy += pairs_to_compare(runs, "rejection")
                for cell, plan in zip(BY_TEMPERATURE, by_temperature, strict=True):
                    runs = runs_of(session, plan, progress)
                    tell(category_rows(runs, cell))
                    greedy += pairs_to_compare(runs, "rejection")
                greedy += pairs_to_compare(runs_of(session, exact[0], progress), "rejection")
                sampled = pairs_to_compare(runs_of(session, exact[1], progress), "coupled")
    except InvalidRequestError as error:
        print(error, file=sys.stderr)
        return 2
    tell([exact_row("greedy texts are plain decoding's", greedy)])
    tell([exact_row("seeded texts, rule coupled, are too", sampled)])
    return finish(rows)


if __name__ == "__main__":
    sys.exit(main())
