"""A model without some of its middle layers, sharing all weights.

Skipping layers in the middle keeps far more of what a model says than leaving it early, when it is not trained for
either (Zhang et al., "Draft & Verify", 2309.08168). Knows how mlx-lm's models hold their layers; knows no particular
model, and does not know whether what is left is any good.
"""

import copy
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

# Where the skipped run ends, as a part of the depth: layers about there are the most alike.
USUAL_END = Fraction(2, 3)


class CannotSkipError(Exception):
    """Why a model cannot do without some of its layers, in words for a person."""


def skipped_run(model: nn.Module, num_kept: int, end: Fraction = USUAL_END) -> range:
    """The layers to skip so that about `num_kept` are left, which is at least 1; the run ends about at `end`.

    mlx-lm's models look at fixed layers for their masks, and count layers to tell of what kind each is. So the kinds of
    what is left must follow each other as they would in a shorter model, none of them missing: where layers of several
    kinds take turns, the run that comes nearest is taken; none, if every layer is needed. Raises CannotSkipError if the
    layers cannot be told apart.
    """
    total = len(model.layers)
    if num_kept == total:
        return range(0)
    kinds = [_kind(cache) for cache in make_prompt_cache(model)]
    if len(kinds) != total:
        raise CannotSkipError("not every layer keeps a cache of its own")
    length = total - num_kept
    stop = max(round(total * end), length + 1)  # the first layer is the last to be given up

    def distance(run: range) -> tuple[bool, int]:
        return not run, abs(len(run) - length) + abs(run.stop - stop)

    runs = [range(first, last) for first in range(total) for last in range(first, total + 1)]
    return next(run for run in sorted(runs, key=distance) if _fits(kinds, run))  # the empty run always does


def without_layers(model: nn.Module, skipped: range) -> nn.Module:
    """The model without these layers. It shares everything with `model`, which stays as it is."""
    shallow = copy.copy(model)
    part = shallow
    for name in _path_to_layers(model):
        part[name] = copy.copy(part[name])
        part = part[name]
    part["layers"] = [layer for index, layer in enumerate(part["layers"]) if index not in skipped]
    return shallow


def _fits(kinds: Sequence[object], skipped: range) -> bool:
    left = [kind for index, kind in enumerate(kinds) if index not in skipped]
    return left == kinds[: len(left)] and set(left) == set(kinds)


def _kind(cache: Any) -> tuple[type, int | None]:
    return type(cache), getattr(cache, "max_size", None)


def _path_to_layers(model: nn.Module) -> list[str]:
    """Names leading from the model to the module that holds its layers."""
    for path, module in _modules(model, []):
        if "layers" in module and len(module["layers"]) == len(model.layers):
            return path
    raise CannotSkipError("it does not hold its layers in a list")


def _modules(module: nn.Module, path: list[str]) -> Iterator[tuple[list[str], nn.Module]]:
    yield path, module
    for name, child in module.items():
        if isinstance(child, nn.Module):
            yield from _modules(child, [*path, name])
