"""A model in memory with all that serving it takes. Knows not where it came from but by name."""

from dataclasses import dataclass

import mlx.nn as nn

from mtplx.engine.models.mtp import DraftHead
from mtplx.engine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """`id` is what clients call it; `source` tells a person where the weights lie; `model` is an mlx-lm model, and
    `draft_head` a head that came with it."""

    id: str
    source: str
    architecture: str
    quantization: str
    context_length: int
    vocab_size: int
    model: nn.Module
    tokenizer: Tokenizer
    draft_head: DraftHead | None = None
