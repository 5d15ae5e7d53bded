"""Which way a model runs. Knows the check that decides: rows must equal mlx-lm's own forward on this very model."""

import logging
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.models.row_target import NotByRowsError, RowTarget
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.types import Logits

logger = logging.getLogger(__name__)

LayerCaches = Callable[[], list[Any]]

# Two sequences that share forwards, each fed in two steps: what a layer must get right to run by rows.
_PROBE = (((3, 5), (7,)), ((11,), (13,)))


def make_target(model: nn.Module, make_layer_caches: LayerCaches | None = None) -> Target:
    """The target for an mlx-lm model: by rows if they equal its own forward, else one sequence at a time.

    `make_layer_caches` overrides what mlx-lm would make, for models that are only a part of another.
    """
    make = make_layer_caches or (lambda: make_prompt_cache(model))
    try:
        target = RowTarget(model, make())
        _check_rows(target, model, make)
        return target
    except NotByRowsError as reason:
        logger.info("this model runs one sequence at a time: %s", reason)
        return SequentialTarget(model, make)


def _check_rows(target: RowTarget, model: nn.Module, make: LayerCaches) -> None:
    """Raises NotByRowsError unless rows give what mlx-lm's forward gives."""
    try:
        by_rows = _run_rows(target)
    except NotByRowsError:
        raise
    except Exception as error:  # models fail in their own ways when a row is not what they expect
        raise NotByRowsError(f"it fails on flattened rows ({error})") from error
    for tokens, logits in zip(_PROBE, by_rows, strict=True):
        stock = model(mx.array([token for part in tokens for token in part])[None], cache=make())[0]
        # Kernels may change with the shape, so rounding may carry logits apart, in half precision visibly.
        tolerance = 5e-2 if stock.dtype in (mx.float16, mx.bfloat16) else 1e-3
        expected = np.array(stock.astype(mx.float32))
        difference = np.abs(logits - expected).max() / np.abs(expected).max()
        if not difference <= tolerance:
            raise NotByRowsError(f"its logits by rows differ from mlx-lm's, by {difference:.1e} of their size")


def _run_rows(target: RowTarget) -> list[Logits]:
    caches = [target.new_cache() for _ in _PROBE]
    parts: list[list[Logits]] = [[] for _ in _PROBE]
    for step in range(2):
        batch = [Rows(cache, tokens[step], len(tokens[step])) for cache, tokens in zip(caches, _PROBE, strict=True)]
        for part, logits in zip(parts, target.forward(batch), strict=True):
            part.append(logits)
        for cache, tokens in zip(caches, _PROBE, strict=True):
            cache.commit(len(tokens[step]))
    return [np.concatenate(part) for part in parts]
