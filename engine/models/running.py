"""Which way a model runs. Knows the check that decides: rows must equal mlx-lm's own forward on this very model."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.cache import RowCache
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.fused_target import FusedTarget
from mtplx.engine.models.row_target import NotByRowsError, RowTarget
from mtplx.engine.models.sequential_cache import SequentialCache
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.stacked_cache import StackedCache
from mtplx.engine.types import Logits
from mtplx.kernels.decoder import OtherShapeError
from mtplx.kernels.inputs import float_inputs

logger = logging.getLogger(__name__)

_WIDEST_PROBED_WINDOW = 64
_TOLERANCE = 1e-3  # of the largest logit
_HALF_TOLERANCE = 1e-2  # the same where keys and values are rounded to float16

Probe = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def make_target(model: nn.Module, *, half_rows: bool = False) -> Target:
    """The target for an mlx-lm model: by rows if they equal its own forward, else one sequence at a time.

    With `half_rows`, one that runs as a native call keeps keys and values as float16, unless they do not fit that.
    Raises ModelLoadError when the model runs neither way.
    """

    def layer_caches() -> list[Any]:
        caches: list[Any] = make_prompt_cache(model)
        return caches

    target: Target
    try:
        with float_inputs():
            target = _checked_by_rows(model, layer_caches)
    except NotByRowsError as reason:
        logger.info("this model runs one sequence at a time: %s", reason)
        target = SequentialTarget(model, layer_caches)
        try:
            run_a_round(target)
        except Exception as error:  # mlx-lm's models fail in their own ways
            raise ModelLoadError(f"mlx-lm can't run this model: {error}; name another one") from error
    if half_rows and isinstance(target, FusedTarget):
        with float_inputs():
            _keep_half_rows(target, model)
    return target


def by_rows(model: nn.Module, layer_caches: Sequence[Any], *, half_rows: bool = False) -> RowTarget:
    """The target that runs the model by rows, its decoder layers as one native call if they are of the shape for it.

    `half_rows` is as for `make_target`. Raises NotByRowsError when a layer keeps anything but keys and values.
    """
    try:
        return FusedTarget(model, layer_caches, mx.float16 if half_rows else mx.float32)
    except OtherShapeError as reason:
        logger.info("the decoder layers run one by one: %s", reason)
        return RowTarget(model, layer_caches)


def _checked_by_rows(model: nn.Module, layer_caches: Callable[[], Sequence[Any]]) -> RowTarget:
    """The target by rows, without native code of its own if that is what differs. Raises NotByRowsError."""
    target = by_rows(model, layer_caches())
    try:
        _check_rows(target, model)
    except NotByRowsError as reason:
        if not target.is_native:
            raise
        target = RowTarget(model, layer_caches(), allow_native=False)
        _check_rows(target, model)
        logger.error("MLX's own attention serves, one layer at a time, since with native kernels: %s", reason)
    return target


def row_type(target: Target) -> Literal["float32", "float16"] | None:
    """What keys and values are kept as, if the decoder layers run as one native call; else None."""
    if not isinstance(target, FusedTarget):
        return None
    return "float16" if target.row_type == mx.float16 else "float32"


def shows_hidden(target: Target) -> bool:
    """Whether the target's hidden states can be kept: its output head is where one is looked for."""
    cache = target.new_cache()
    cache.hidden = HiddenRows(most_rows=1)
    target.forward([Rows(cache, (3,), 1)])
    return cache.hidden.take() is not None


def run_a_round(target: Target) -> None:
    """Forward a few rows, keep one of them, and go on from there. Raises whatever keeps the model from that."""
    cache = target.new_cache()
    target.forward([Rows(cache, (3, 5), 2)])
    cache.commit(1)
    target.forward([Rows(cache, (7,), 1)])


def fingerprint(target: Target) -> str:
    """Names the very weights and the way they run, by what comes out of them."""
    [logits] = target.forward([Rows(target.new_cache(), (3, 5, 7), 3)])
    return hashlib.blake2b(logits.tobytes(), digest_size=16).hexdigest()


def row_bytes(target: Target) -> int:
    """What each row more takes in a cache, in bytes; 0 for states that do not grow. Measured."""
    cache = target.new_cache()
    sizes = []
    for num_rows in (1, 16):
        target.forward([Rows(cache, (3,) * num_rows, 0)])
        cache.commit(num_rows)
        if isinstance(cache, RowCache | StackedCache):  # which have room for many rows from the start
            return cache.row_bytes
        leaves: Any = tree_flatten(cast(SequentialCache, cache).arrays)
        sizes.append(sum(leaf.nbytes for _, leaf in leaves if isinstance(leaf, mx.array)))
    return (sizes[1] - sizes[0]) // 16


def _keep_half_rows(target: FusedTarget, model: nn.Module) -> None:
    target.row_type = mx.float16
    try:
        _check_rows(target, model, _HALF_TOLERANCE)
    except NotByRowsError as reason:
        target.row_type = mx.float32
        logger.error("keys and values are kept in float32, since in float16: %s", reason)


def _check_rows(target: RowTarget, model: nn.Module, tolerance: float = _TOLERANCE) -> None:
    """Raises NotByRowsError unless a few rows give what mlx-lm's forward gives, within a share of the largest logit.

    They go past the narrowest window only if it is of 64 rows or fewer. What a model does beyond that, as with scales
    that change at some position, is not looked at; but no layer may mask a window that isn't its cache's.
    """
    probe = _probe(target)
    try:
        by_rows = _run_rows(target, probe)
        stock = [model(mx.array([[*first, *second]]), cache=make_prompt_cache(model))[0] for first, second in probe]
    except NotByRowsError:
        raise
    except Exception as error:  # models fail in their own ways when a row is not what they expect
        raise NotByRowsError(f"it fails on flattened rows ({error})") from error
    for logits, expected in zip(by_rows, stock, strict=True):
        # Kernels may change with the shape, so rounding may carry logits apart, in half precision visibly.
        allowed = 5e-2 if expected.dtype in (mx.float16, mx.bfloat16) else tolerance
        difference = float(mx.abs(mx.array(logits) - expected).max() / mx.abs(expected).max())
        if not difference <= allowed:
            raise NotByRowsError(f"its logits by rows differ from mlx-lm's, by {difference:.1e} of their size")


def _probe(target: RowTarget) -> Probe:
    """Two sequences that share forwards, each fed in two steps: what a layer must get right to run by rows."""
    cache = target.new_cache()
    layers = cache.layers if isinstance(cache, RowCache) else ()
    windows = [layer.window for layer in layers if layer.window is not None]
    narrowest = min(windows, default=0)
    past_it = range(narrowest) if narrowest <= _WIDEST_PROBED_WINDOW else ()
    return ((3, 5, *(token % 16 for token in past_it)), (7,)), ((11,), (13,))


def _run_rows(target: RowTarget, probe: Probe) -> list[Logits]:
    caches = [target.new_cache() for _ in probe]
    parts: list[list[Logits]] = [[] for _ in probe]
    for step in range(2):
        batch = [Rows(cache, tokens[step], len(tokens[step])) for cache, tokens in zip(caches, probe, strict=True)]
        for part, logits in zip(parts, target.forward(batch), strict=True):
            part.append(logits)
        for cache, tokens in zip(caches, probe, strict=True):
            cache.commit(len(tokens[step]))
    return [np.concatenate(part) for part in parts]
