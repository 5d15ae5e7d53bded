"""A multi-token-prediction block to train, begun from its target.

At the start it feeds the target's hidden state, as it was before the final norm, to a copy of the target's last layer
once more, and makes nothing of the next token's embedding. Knows mlx-lm's conventions; knows no particular model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from mtplx.engine.models.mtp import MtpBlock
from mtplx.engine.models.output_head import OutputHead
from mtplx.engine.models.parts import fresh_last_layer, hidden_size, num_embeddings, plain_weights

_NUM_PROBED = 64  # tokens: sizes grow along the first dozens
_LEAST_WEIGHT = 0.5  # of the final norm: dividing by less would blow up what the hidden state hardly tells


class NoBlockError(Exception):
    """Why there is no block like a model's layers, in words for a person."""


@dataclass(frozen=True)
class _Ends:
    """What goes into the last layer, what comes out of it, and what the output head sees: [T, D] each."""

    entering: mx.array
    leaving: mx.array
    hidden: mx.array


def block_like(model: nn.Module) -> MtpBlock:
    """A block in float32 with the model's last layer, whose projection is the identity on the hidden state, rescaled by
    the inverse of the final norm's weight to the size that the last layer takes. Raises NoBlockError.
    """
    try:
        ends = _ends(model)
        norm = _final_norm(model, ends)
        block = MtpBlock(fresh_last_layer(model), hidden_size(model), getattr(norm, "eps", 1e-6), _last_window(model))
        block.layer.load_weights(list(plain_weights(model.layers[-1]).items()))
        weight = _weight_of(norm, block.norm.weight.shape[0])
        block.norm.weight = weight
        block.projection.weight = mx.concatenate(
            [mx.zeros((weight.size, weight.size)), _rescaling(weight, ends)], axis=1
        )
        again = block.run_layer(ends.entering[None])[0]
        if not _nearly_equal(again, ends.leaving):
            raise NoBlockError("its last layer on its own gives something else than within the model")
    except NoBlockError:
        raise
    except Exception as error:  # mlx-lm's models fail in their own ways where they hold their parts differently
        raise NoBlockError(f"its last layer can't be run on its own: {error}") from error
    mx.eval(block.parameters())  # type: ignore[no-untyped-call]
    return block


def _rescaling(weight: mx.array, ends: _Ends) -> mx.array:
    """The diagonal matrix that takes a hidden state after a norm of ones to what it was before the final norm, at the
    size of what enters the last layer."""
    least = mx.where(weight < 0, -_LEAST_WEIGHT, _LEAST_WEIGHT)
    divisor = mx.where(mx.abs(weight) < _LEAST_WEIGHT, least, weight)
    return mx.diag(_usual_size(ends.entering) * _usual_size(ends.hidden) / divisor)


def _usual_size(rows: mx.array) -> mx.array:
    """The median of the rows' root mean squares: the first row of a text is often far larger than the others."""
    return mx.median(mx.sqrt(mx.mean(rows * rows, axis=-1)))


def _ends(model: nn.Module) -> _Ends:
    """On tokens all over the vocabulary."""
    seen: list[mx.array] = []

    def see(hidden: mx.array) -> mx.array:
        seen.append(hidden)
        return hidden

    vocab_size = num_embeddings(model)
    with OutputHead(model).selecting(see), _watched(model.layers[-1]) as passed:
        logits = model(mx.array([[(7 + 7919 * place) % vocab_size for place in range(_NUM_PROBED)]]))
    if len(seen) != 1 or len(passed) != 1:
        raise NoBlockError("it doesn't run its last layer and its output head once each")
    [[entering, leaving]] = passed
    ends = _Ends(*(rows[0].astype(mx.float32) for rows in (entering, leaving, seen[0])))
    mx.eval(logits, ends.entering, ends.leaving, ends.hidden)
    return ends


@contextmanager
def _watched(layer: nn.Module) -> Iterator[list[tuple[mx.array, mx.array]]]:
    """Within, the list gets what enters and leaves the layer in each call."""
    kind: Any = type(layer)
    passed: list[tuple[mx.array, mx.array]] = []

    def call(layer: nn.Module, x: mx.array, *others: Any, **named: Any) -> Any:
        y = kind.__call__(layer, x, *others, **named)
        passed.append((x, y))
        return y

    layer.__class__ = type(kind.__name__, (kind,), {"__call__": call})
    try:
        yield passed
    finally:
        layer.__class__ = kind


def _final_norm(model: nn.Module, ends: _Ends) -> nn.Module:
    """The norm between the last layer and the output head, known by what it does."""
    for name, module in model.named_modules():
        if "Norm" not in type(module).__name__ or "layers." in name:
            continue
        if _nearly_equal(module(ends.leaving), ends.hidden):
            norm: nn.Module = module
            return norm
    raise NoBlockError("nothing but a norm may be between its last layer and its output head")


def _nearly_equal(given: mx.array, expected: mx.array) -> bool:
    """As far as the rounding of half precision leaves it."""
    return bool((mx.abs(given - expected).max() <= 2e-2 * mx.abs(expected).max()).item())


def _weight_of(norm: nn.Module, size: int) -> mx.array:
    """What a norm multiplies by [D], whichever way it holds it: a row of mean 0 and size 1 shows it."""
    signs = mx.where(mx.arange(size) % 2 == 0, 1.0, -1.0)
    weight: mx.array = (norm(signs[None])[0] - norm(-signs[None])[0]) * signs / 2
    return weight.astype(mx.float32)


def _last_window(model: nn.Module) -> int | None:
    cache = make_prompt_cache(model)[-1]
    if type(cache) is KVCache:
        return None
    if type(cache) is RotatingKVCache and cache.keep == 0:
        return int(cache.max_size)
    raise NoBlockError(f"its last layer keeps a {type(cache).__name__}, not plain keys and values")
