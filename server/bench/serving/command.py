"""`mtplx bench --serve` from options to reports. Knows files and the terminal; measuring and counting are done
elsewhere."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice

from rich.console import Console

from mtplx.engine.errors import InvalidRequestError
from mtplx.server.bench.progress import Progress
from mtplx.server.bench.prompts import BUILT_IN, choose_prompts, read_prompts
from mtplx.server.bench.serving.arrivals import Arrival, ClosedLoop, Poisson, Run, run
from mtplx.server.bench.serving.bodies import endless_bodies
from mtplx.server.bench.serving.figures import Figures, figures
from mtplx.server.bench.serving.figures_table import figures_table
from mtplx.server.bench.serving.options import ServingOptions
from mtplx.server.bench.serving.process import ServerError, model_name, own_server

_LEAST_WIDTH = 150  # of a table that goes to a file or a pipe


def bench_serving(options: ServingOptions, settings: Mapping[str, object]) -> None:
    """Measure the servers that the options name, or one of our own with the settings chosen on the command line.

    Prints a table, and writes JSON if asked for. Raises InvalidRequestError for options that cannot be, ServerError
    for a server that does not start or does not answer.
    """
    if options.json is not None and not options.json.parent.is_dir():
        raise InvalidRequestError(f"{options.json}: there is no such folder")
    loads: list[Arrival] = [Poisson(rate, options.seed) for rate in options.rates]
    loads = loads or [ClosedLoop(num_clients) for num_clients in options.clients]
    with _servers(options, settings) as (urls, end_tokens):
        names = {url: model_name(url) for url in urls}
        results = _measure(options, names, loads, end_tokens)
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, _LEAST_WIDTH))
    console.print(figures_table(results))
    if options.json is not None:
        report = {"options": asdict(options), "models": names, "figures": [asdict(each) for each in results]}
        options.json.write_text(json.dumps(report, default=str, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _servers(options: ServingOptions, settings: Mapping[str, object]) -> Iterator[tuple[Sequence[str], Iterable[int]]]:
    """The servers' addresses, and the tokens that end a text in their models."""
    if options.serve:
        yield options.serve, options.end_tokens or ()
        return
    end_tokens: Iterable[int] = _end_tokens(settings) if options.end_tokens is None else options.end_tokens
    with own_server(settings) as server:
        yield (server.url,), end_tokens


def _end_tokens(settings: Mapping[str, object]) -> Iterable[int]:
    from mtplx.configs.settings import load_settings
    from mtplx.engine.models.loading import load_model

    return load_model(load_settings(settings).model).tokenizer.eos_token_ids


def _measure(
    options: ServingOptions, models: Mapping[str, str], loads: Sequence[Arrival], end_tokens: Iterable[int]
) -> list[Figures]:
    """Each load on each server in turn, as often as asked. The first request to each server is not counted."""
    prompts = choose_prompts(read_prompts(options.prompts or BUILT_IN), options.categories, options.limit)
    bodies = endless_bodies(prompts, max_tokens=options.max_tokens, end_tokens=end_tokens, fields=options.fields)
    runs: dict[tuple[Arrival, str], list[Run]] = defaultdict(list)
    with Progress(options.repeats * len(loads) * len(models)) as progress:
        for url, model in models.items():
            [answer] = run(url, ClosedLoop(1), [{"model": model, **next(bodies)}]).answers
            if answer.error is not None:
                raise ServerError(f"{url} does not answer: {answer.error}")
        for _ in range(options.repeats):
            for load in loads:
                chosen = list(islice(bodies, options.requests))
                for url, model in models.items():
                    runs[load, url].append(run(url, load, [{"model": model, **body} for body in chosen]))
                    progress.advance()
    return [figures(url, str(load), runs[load, url]) for load in loads for url in models]
