"""`mtplx bench` from options to reports. Knows files and the terminal; measuring and counting are done elsewhere."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.session import EngineSession, GenerationConfig
from mtplx.server.bench.cells import make_cells
from mtplx.server.bench.environment import environment
from mtplx.server.bench.exactness import check_exact
from mtplx.server.bench.measuring import Plan, Run, encode_prompt, measure
from mtplx.server.bench.options import BenchOptions
from mtplx.server.bench.progress import Progress
from mtplx.server.bench.prompts import BUILT_IN, choose_prompts, read_prompts
from mtplx.server.bench.summary import Summary, summarize
from mtplx.server.bench.table import make_tables

_LEAST_WIDTH = 120  # of a table that goes to a file or a pipe


def bench(options: BenchOptions, config: GenerationConfig) -> None:
    """Measure, print the table, write what files are asked for. Ctrl-C ends it with what has been measured by then.

    Raises InvalidRequestError for options that do not fit the model, NotExactError if `check_exact` finds a difference.
    """
    prompts = choose_prompts(read_prompts(options.prompts or BUILT_IN), options.categories, options.limit)
    _check_paths(options)
    with EngineSession(config) as session:
        plan = Plan(
            prompts=[encode_prompt(session.model, prompt, options.max_tokens) for prompt in prompts],
            cells=make_cells(options.drafters, options.depths, options.temperatures),
            num_tokens=options.max_tokens,
            num_repeats=options.repeats,
            acceptance=options.acceptance,
        )
        about = environment(session)
        runs: list[Run] = []
        try:
            with Progress(plan.num_runs) as progress:
                for group in measure(session, plan, progress.advance):
                    runs += group
        except KeyboardInterrupt:
            if runs:
                _report(options, about, runs)
            raise
    _report(options, about, runs)
    if options.check_exact:
        print(f"exact: {check_exact(runs, options.acceptance)} texts are those of plain decoding, token for token")


def _check_paths(options: BenchOptions) -> None:
    """Now, since it would be a pity later."""
    for path in (options.json, options.png):
        if path is not None and not path.parent.is_dir():
            raise InvalidRequestError(f"{path}: there is no such folder")
    if options.png is not None:
        _picture_writer()


def _report(options: BenchOptions, about: Mapping[str, object], runs: Sequence[Run]) -> None:
    summaries = summarize(runs)
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, _LEAST_WIDTH))
    console.print(make_tables(summaries))
    if options.json is not None:
        _write_json(options, about, runs, summaries)
    if options.png is not None:
        title = f"{about['model']}, {options.max_tokens} tokens each, {about['cpu']}"
        _picture_writer()(summaries, options.png, title)


def _write_json(
    options: BenchOptions, about: Mapping[str, object], runs: Sequence[Run], summaries: Sequence[Summary]
) -> None:
    assert options.json is not None
    results = {
        "environment": about,
        "options": asdict(options),
        "summary": [asdict(summary) for summary in summaries],
        "runs": [asdict(run) for run in runs],
    }
    options.json.write_text(json.dumps(results, default=str, indent=1) + "\n", encoding="utf-8")


def _picture_writer() -> Callable[[Sequence[Summary], Path, str], None]:
    try:
        from mtplx.server.bench.picture import save_picture
    except ImportError as error:
        raise InvalidRequestError(f"--png needs matplotlib ({error}); pip install 'mtplx[bench]' brings it") from None
    return save_picture
