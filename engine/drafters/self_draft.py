"""The `self` drafter: the target itself, made lighter. Which layers it skips and how many bits it keeps is measured.

Knows how to make a lighter copy and how to judge it; the copying is done elsewhere.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.drafters.layer_skip import USUAL_END, CannotSkipError, skipped_run, without_layers
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.requantised import held_bits, requantised
from mtplx.engine.models.running import by_rows, row_type, run_a_round
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.text.tokenizer import Tokenizer
from mtplx.kernels.linear import BITS

logger = logging.getLogger(__name__)

# Ordinary prose: how often a lighter copy agrees on it is close to how often it does on the model's own texts.
PASSAGE = (
    "The old harbour lies where the river meets the sea. Every morning the boats return with the night's catch, and "
    "people from the town come down to buy fish, bread and news. In winter the water freezes near the shore, so the "
    "boats stay at home and the town grows quiet until spring."
)
_SLOW_ROW_S = 0.03  # a model slower than this would be measured for many seconds
_NUM_TIMINGS = 5
_PROBED_ROWS = 4
_DEPTHS = range(1, 9)
_TRIED_PARTS = (Fraction(4, 5), Fraction(2, 3), Fraction(1, 2))  # of the layers
_TRIED_ENDS = (USUAL_END, Fraction(5, 6))
_TRIED_BITS = 4
_LEAST_AGREEMENT = 0.5  # of a copy that is worth making lighter still
_USUAL_PART = _TRIED_PARTS[0]


class NoSelfDrafterError(Exception):
    """Why there is no lighter copy of a model, in words for a person."""


@dataclass(frozen=True)
class Lightening:
    """What is left out: these layers, and the bits of each weight beyond `bits` (None: all are kept)."""

    skipped: range = range(0)
    bits: int | None = None

    def __str__(self) -> str:
        layers = f"skips layers {self.skipped.start} to {self.skipped.stop - 1}" if self.skipped else "has all layers"
        return layers if self.bits is None else f"{layers}, with {self.bits} bits"


@dataclass(frozen=True)
class Judgement:
    """`agreement` is the share of positions with the target's likeliest token; `cost` is that of a row, in target rows;
    `row_cost` that of each further row of the target in a forward."""

    agreement: float
    cost: float
    row_cost: float

    @property
    def speedup(self) -> float:
        """Over plain decoding, at the best depth: (1 + s + … + s^k) / (k·d + V(k + 1)), as in Leviathan et al.
        (2211.17192), where a token survives with the chance s, a draft token costs d, and m rows of the target V(m)."""

        def at(depth: int) -> float:
            tokens = sum(self.agreement**position for position in range(depth + 1))
            return tokens / (depth * self.cost + 1.0 + depth * self.row_cost)

        return max(map(at, _DEPTHS))


def self_drafter(
    model: nn.Module,
    target: Target,
    tokenizer: Tokenizer,
    *,
    num_layers: int | None = None,
    bits: int | None = None,
    measure: bool = False,
) -> ModelDrafter:
    """Drafts with a lighter copy of `model`, run the way `target` runs it.

    `num_layers` and `bits` say how light; with neither the copy skips a fifth of the layers or, if asked to `measure`,
    what is expected to pay best. Raises NoSelfDrafterError when there can be no such copy.
    """
    total = len(model.layers)
    if num_layers is not None and not 1 <= num_layers <= total:
        raise NoSelfDrafterError(f"{num_layers} layers are asked of a model that has {total}")
    if bits is not None and bits not in BITS:
        raise NoSelfDrafterError(f"{bits} bits are asked; weights are held in {', '.join(map(str, BITS))}")
    try:
        if num_layers is None and bits is None and measure:
            return ModelDrafter("self", _best(model, target, tokenizer))
        usual = max(1, round(total * _USUAL_PART)) if bits is None else total
        chosen = Lightening(skipped_run(model, usual if num_layers is None else num_layers), bits)
        return ModelDrafter("self", _lighter(model, target, chosen))
    except CannotSkipError as reason:
        raise NoSelfDrafterError(str(reason)) from reason


def _lighter(model: nn.Module, target: Target, chosen: Lightening) -> Target:
    """The copy as a model to run. Raises NoSelfDrafterError if it does not."""
    light = without_layers(model, chosen.skipped) if chosen.skipped else model
    if chosen.bits is not None:
        twin = requantised(light, chosen.bits)
        if twin is None:
            raise NoSelfDrafterError(f"no product of it has more than {chosen.bits} bits, or can be quantized")
        light = twin
    num_left = len(model.layers) - len(chosen.skipped)

    def layer_caches() -> list[object]:
        return make_prompt_cache(model)[:num_left]

    try:
        copy: Target
        half_rows = row_type(target) == "float16"
        if target.way == "rows":
            copy = by_rows(light, layer_caches(), half_rows=half_rows)
        else:
            copy = SequentialTarget(light, layer_caches)
        run_a_round(copy)
    except Exception as error:  # models fail in their own ways when layers are missing
        raise NoSelfDrafterError(f"a copy that {chosen} does not run ({error})") from error
    return copy


def _best(model: nn.Module, target: Target, tokenizer: Tokenizer) -> Target:
    """The copy that is expected to pay best, or the usual one where measuring would take long."""
    candidates = list(dict.fromkeys(_candidates(model)))
    row_s = _fastest_s(target, 1)
    if row_s > _SLOW_ROW_S:
        logger.info("the drafter 'self' %s, unmeasured: a row of the model takes %.2f s", candidates[0], row_s)
        return _lighter(model, target, candidates[0])
    tokens = tokenizer.encode(PASSAGE)
    likeliest = _likeliest(target, tokens)
    row_cost = (_fastest_s(target, _PROBED_ROWS) / row_s - 1.0) / (_PROBED_ROWS - 1)
    judged = []
    hopeless: set[int] = set()  # ends of runs of which a shorter one is too much already
    for candidate in candidates:
        if candidate.skipped.stop in hopeless:
            continue
        copy = _lighter(model, target, candidate)
        agreement = float(np.mean(_likeliest(copy, tokens) == likeliest))
        row_s = min(row_s, _fastest_s(target, 1))  # once more, close to what it is compared with
        judged.append((Judgement(agreement, _fastest_s(copy, 1) / row_s, row_cost), candidate, copy))
        if agreement < _LEAST_AGREEMENT:
            hopeless.add(candidate.skipped.stop)
        logger.debug("a copy that %s: %s", candidate, judged[-1][0])
    judgement, chosen, copy = max(judged, key=lambda each: each[0].speedup)
    logger.info(
        "the drafter 'self' %s: it agrees with the model on %.0f %% of tokens, a draft token costs %.2f of a row, and "
        "the speed-up to expect is %.2f%s",
        chosen,
        100 * judgement.agreement,
        judgement.cost,
        judgement.speedup,
        "" if judgement.speedup > 1.0 else ", which does not pay",
    )
    return copy


def _candidates(model: nn.Module) -> Iterator[Lightening]:
    """What to try, the usual first. Fewer bits only where most weights have many more: else they cannot pay."""
    total = len(model.layers)
    for part in _TRIED_PARTS:
        for end in _TRIED_ENDS:
            yield Lightening(skipped_run(model, max(1, round(total * part)), end))
    present = [bits for layer in model.modules() if (bits := held_bits(layer))]
    if present and np.median(present) >= 1.5 * _TRIED_BITS:
        yield Lightening(bits=_TRIED_BITS)


def _likeliest(target: Target, tokens: Sequence[int]) -> npt.NDArray[np.int64]:
    """The likeliest token after each of `tokens`: [T]."""
    logits = target.forward([Rows(target.new_cache(), tokens, len(tokens))])[0]  # [T, V]
    tokens_after: npt.NDArray[np.int64] = logits.argmax(axis=-1)
    return tokens_after


def _fastest_s(target: Target, num_rows: int) -> float:
    """Seconds of the fastest of a few forwards of that many rows."""
    cache = target.new_cache()

    def forward() -> float:
        start_s = time.perf_counter()
        target.forward([Rows(cache, [3] * num_rows, num_rows)])
        cache.rollback()
        return time.perf_counter() - start_s

    return min(forward() for _ in range(_NUM_TIMINGS))
