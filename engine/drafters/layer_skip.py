"""The `self` drafter: the target's first layers, its final norm and its output head, sharing all weights.

Early exit as in LayerSkip (Elhoushi et al., 2404.16710), without training for it. Knows how mlx-lm's models hold
their layers; knows no particular model.
"""

import copy
from collections.abc import Iterator
from typing import Any

import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.models.running import by_rows, run_a_round
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Target


class NoSelfDrafterError(Exception):
    """Why a model cannot be cut to its first layers, in words for a person."""


def self_drafter(model: nn.Module, target: Target, num_layers: int | None = None) -> ModelDrafter:
    """Drafts with the first `num_layers` of `model`, by default a quarter, run the way `target` runs it.

    Raises NoSelfDrafterError when the model cannot be cut so.
    """
    total = len(model.layers)
    chosen = max(1, total // 4) if num_layers is None else num_layers
    if not 1 <= chosen <= total:
        raise NoSelfDrafterError(f"{chosen} layers are asked of a model that has {total}")
    shallow, num_kept = first_layers(model, chosen)

    def layer_caches() -> list[Any]:
        return make_prompt_cache(model)[:num_kept]

    cut: Target
    try:
        cut = by_rows(shallow, layer_caches()) if target.way == "rows" else SequentialTarget(shallow, layer_caches)
        run_a_round(cut)
    except Exception as error:  # models fail in their own ways when layers are missing
        raise NoSelfDrafterError(f"its first {num_kept} layers do not run alone ({error})") from error
    return ModelDrafter("self", cut)


def first_layers(model: nn.Module, num_layers: int) -> tuple[nn.Module, int]:
    """A model of the first `num_layers` layers, sharing the rest with `model`, and how many layers it kept.

    Models look at one layer of each kind for its mask, so enough layers are kept to hold every kind.
    """
    kinds = [_kind(cache) for cache in make_prompt_cache(model)]
    if len(kinds) != len(model.layers):
        raise NoSelfDrafterError("not every layer keeps a cache of its own")
    num_kept = max(num_layers, *(kinds.index(kind) + 1 for kind in kinds))
    shallow = copy.copy(model)
    part = shallow
    for name in _path_to_layers(model):
        part[name] = copy.copy(part[name])
        part = part[name]
    part["layers"] = part["layers"][:num_kept]
    return shallow, num_kept


def _kind(cache: Any) -> tuple[type, int | None]:
    return type(cache), getattr(cache, "max_size", None)


def _path_to_layers(model: nn.Module) -> list[str]:
    """Names leading from the model to the module that holds its layers."""
    for path, module in _modules(model, []):
        if "layers" in module and len(module["layers"]) == len(model.layers):
            return path
    raise NoSelfDrafterError("it does not hold its layers in a list")


def _modules(module: nn.Module, path: list[str]) -> Iterator[tuple[list[str], nn.Module]]:
    yield path, module
    for name, child in module.items():
        if isinstance(child, nn.Module):
            yield from _modules(child, [*path, name])
