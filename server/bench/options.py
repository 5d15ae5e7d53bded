"""What may be asked of `mtplx bench` on the command line. Imports nothing slow: help is made of it."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, get_args

from mtplx.configs.settings import AcceptanceName, DrafterName

Value = TypeVar("Value")


@dataclass(frozen=True)
class BenchOptions:
    """The words of the command line, checked as far as that goes without a model."""

    prompts: Path | None
    categories: tuple[str, ...]
    limit: int | None
    drafters: tuple[str, ...]
    depths: tuple[int | Literal["auto"], ...]
    temperatures: tuple[float, ...]
    acceptance: AcceptanceName
    max_tokens: int
    repeats: int
    check_exact: bool
    json: Path | None
    png: Path | None


def add_bench_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure how much faster drafters decode than plain decoding, prompt by prompt, each way taking turns. "
        "A speedup is the ratio of total decoding times over the prompts, prefill left out."
    )
    _add_prompts(parser.add_argument_group("prompts"))
    _add_cells(parser.add_argument_group("ways to decode"))
    results = parser.add_argument_group("results")
    results.add_argument("--check-exact", action="store_true", help="fail unless greedy text is plain decoding's")
    results.add_argument("--json", type=Path, metavar="PATH", help="write every run, the summary and the environment")
    results.add_argument("--png", type=Path, metavar="PATH", help="draw speedup against depth (needs matplotlib)")


def _add_prompts(group: argparse._ArgumentGroup) -> None:
    forms = (
        "a .jsonl file with 'prompt', 'messages' or Spec-Bench's 'turns' a line, or a text file with a prompt a line"
    )
    add = group.add_argument
    add("--prompts", type=Path, metavar="FILE", help=f"{forms}; the built-in set if not given")
    add("--categories", type=_list_of(str), default=(), metavar="A,B", help="kinds of prompts to take (default: all)")
    add("--limit", type=_whole(1), metavar="N", help="most prompts of each category")
    add("--max-tokens", type=_whole(1), default=128, metavar="N", help="tokens to decode after each (default: 128)")
    add("--repeats", type=_whole(1), default=1, metavar="N", help="times to decode each each way (default: 1)")


def _add_cells(group: argparse._ArgumentGroup) -> None:
    drafters, depths, temperatures = _list_of(_drafter), _list_of(_depth), _list_of(_temperature)
    names = ", ".join(get_args(DrafterName))
    add = group.add_argument
    add("--drafters", type=drafters, default="ngram,auto", metavar="A,B", help=f"of {names} (default: ngram,auto)")
    add("--depths", type=depths, default="3,8,auto", metavar="A,B", help="tokens to draft (default: 3,8,auto)")
    add("--temperatures", type=temperatures, default="0", metavar="A,B", help="from 0 to 2 (default: 0)")
    add("--acceptance", choices=get_args(AcceptanceName), default="rejection", help="rule (default: rejection)")


def bench_options(chosen: argparse.Namespace) -> BenchOptions:
    return BenchOptions(**{name: getattr(chosen, name) for name in BenchOptions.__dataclass_fields__})


def _list_of(parse: Callable[[str], Value]) -> Callable[[str], Sequence[Value]]:
    def parse_list(text: str) -> Sequence[Value]:
        parts = [part.strip() for part in text.split(",")]
        if not all(parts):
            raise argparse.ArgumentTypeError(f"expected values with commas between them, not {text!r}")
        return tuple(dict.fromkeys(parse(part) for part in parts))

    return parse_list


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, not {text!r}")
        return int(text)

    return parse


def _depth(text: str) -> int | Literal["auto"]:
    return "auto" if text == "auto" else _whole(0)(text)


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 2:
        raise argparse.ArgumentTypeError(f"expected numbers from 0 to 2, not {text!r}")
    return value


def _drafter(text: str) -> str:
    names = get_args(DrafterName)
    if text not in names:
        raise argparse.ArgumentTypeError(f"there is no drafter {text!r}; there are {', '.join(names)}")
    return text
