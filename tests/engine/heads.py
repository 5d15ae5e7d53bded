"""Draft heads with random weights on tiny models, and what such a head foresees, computed without any cache."""

from collections.abc import Sequence
from functools import cache

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.fresh_block import block_like
from mtplx.engine.models.mtp import DraftHead, MtpBlock, draft_head
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.types import Logits
from mtplx.kernels.accelerate import accelerate, is_accelerated
from tests.tiny_configs import CONFIGS
from tests.tiny_models import random_weights, tiny_model

Part = npt.NDArray[np.int32]


@cache
def headed_model(kind: str) -> nn.Module:
    """A tiny model whose last layer a block can have. A "native" one is quantized and decodes with native kernels; a
    "windowed" one attends within a window in that layer."""
    *forms, architecture = kind.split()
    config = CONFIGS[architecture]
    if "windowed" in forms:
        config = config | {"num_hidden_layers": config["num_hidden_layers"] - 1}
    if "native" in forms:
        config = config | {"hidden_size": 64}
    model = tiny_model(architecture, config)
    if "native" in forms:
        _quantize(model)
        accelerate(model)
    return model


def random_block(model: nn.Module, seed: int = 3) -> MtpBlock:
    """In float32."""
    block = block_like(model)
    module: nn.Module = block
    module.load_weights(list(random_weights(block, seed).items()))
    return block


def random_head(model: nn.Module, part: Part | None = None) -> DraftHead:
    """Of weights and kernels like the model's."""
    block = random_block(model)
    if is_accelerated(model):
        _quantize(block)
        accelerate(block)
    return draft_head(model, block, part)


def states_of(target: Target, tokens: Sequence[int]) -> mx.array:
    """The target's hidden states of a whole text [T, D], by one forward."""
    rows = target.new_cache()
    rows.hidden = HiddenRows()
    target.forward([Rows(rows, tokens, 1)])
    piece = rows.hidden.take()
    assert piece is not None
    return mx.array(piece.states)


def plain_logits(head: DraftHead, states: mx.array, tokens: Sequence[int], drafted: Sequence[int] = ()) -> Logits:
    """Logits [N] of the token after `drafted`, which follows on `tokens`; `states` [T, D] are of the last of these but
    one, and of those before it.

    The block goes over everything anew for each token of the draft, and is given its own hidden states for it.
    """
    text = list(tokens)
    for token in (*drafted, None):
        after = mx.array(text[len(text) - states.shape[0] :])
        hidden = head.block(states[None], head.embed(after)[None])[0, -1:]
        if token is not None:
            text.append(token)
            states = mx.concatenate([states, hidden])
    return np.array(head.project(hidden)[0])


def _quantize(module: nn.Module) -> None:
    def fits(_: str, part: nn.Module) -> bool:
        return hasattr(part, "to_quantized") and part.weight.shape[-1] % 32 == 0

    nn.quantize(module, group_size=32, bits=8, class_predicate=fits)
