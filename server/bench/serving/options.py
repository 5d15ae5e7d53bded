"""What may be asked of `mtplx bench --serve` on the command line. Imports nothing slow: help is made of it."""

import argparse
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ServingOptions:
    """The words of the command line. `serve` has the servers to measure; none means our own."""

    serve: tuple[str, ...]
    clients: tuple[int, ...]
    rates: tuple[float, ...]
    requests: int
    seed: int
    end_tokens: tuple[int, ...] | None
    fields: Mapping[str, Any]
    prompts: Path | None
    categories: tuple[str, ...]
    limit: int | None
    max_tokens: int
    repeats: int
    json: Path | None


def add_serving_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that only `--serve` knows. Those for prompts, output length, repeats and results are the benchmark's,
    of which drafters, depths and temperatures mean nothing here: `--fields` says them."""
    group = parser.add_argument_group(
        "servers under load",
        "With --serve, chat completions are streamed from servers over HTTP, and each load is put on each server in "
        "turn. Every prompt begins with a number of its own, so that no server can answer from what it remembers.",
    )
    add = group.add_argument
    add("--serve", nargs="*", metavar="URL", help="servers to measure; one of our own, with these settings, if none")
    add("--clients", type=_list_of(_whole), default="1,2,4,8,16", metavar="A,B", help="clients that each send the next "
        "request once the last is answered (default: 1,2,4,8,16)")  # fmt: skip
    add("--rates", type=_list_of(_positive), default=(), metavar="A,B", help="requests a second that come at random "
        "times instead, whatever is open: a Poisson process")  # fmt: skip
    add("--requests", type=_whole, default=32, metavar="N", help="requests of each load (default: 32)")
    add("--load-seed", dest="seed", type=int, default=0, metavar="N", help="seed of arrival times (default: 0)")
    add("--end-tokens", type=_list_of(int), metavar="A,B", help="ids of tokens that end a text, which are forbidden so "
        "that all texts have --max-tokens; for our own server they are known")  # fmt: skip
    add("--fields", type=_object, default={}, metavar="JSON", help="fields to add to every request's body")


def serving_options(chosen: argparse.Namespace) -> ServingOptions:
    names = ServingOptions.__dataclass_fields__
    values = {name: getattr(chosen, name) for name in names}
    return ServingOptions(**{**values, "serve": tuple(url.rstrip("/") for url in chosen.serve)})


def _list_of(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def parse_list(text: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))

    parse_list.__name__ = "list"
    return parse_list


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return value


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, not {text!r}")
    return value
