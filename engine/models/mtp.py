"""The multi-token-prediction block, as DeepSeek-V3 (2412.19437, section 2.2) and Qwen3-Next have it, and the draft head
around it.

From what the target's output head saw of a token (its hidden state after the final norm) and the embedding of the next
token, the block makes a guess of what the head will see of that next token; fed with its own guess, it goes on. Knows
no particular model, and not where weights come from.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache

from mtplx.engine.models.parts import embedding_of, head_of, head_over
from mtplx.engine.rows import RowView, install_row_attention
from mtplx.engine.survival import Promise

LayerCache = KVCache | RotatingKVCache | RowView


class MtpBlock(nn.Module):
    """One decoder layer of the target's own kind, mlx-lm's own class, between a projection and a norm.

    `window` is that of the layer's attention, None for full attention.
    """

    def __init__(self, layer: nn.Module, hidden_size: int, eps: float, window: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_norm = nn.RMSNorm(hidden_size, eps)
        self.hidden_norm = nn.RMSNorm(hidden_size, eps)
        self.projection = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        self.layer = layer
        self.norm = nn.RMSNorm(hidden_size, eps)
        self.window = window
        install_row_attention(layer)

    def __call__(self, hidden: mx.array, embeddings: mx.array, cache: LayerCache | None = None) -> mx.array:
        """The hidden states [.., D] that follow on those given, each with the embedding of the token after it.

        As rows [T, 1, D] with one layer's `RowView`, or as one sequence [1, T, D] with what `make_cache` gives, or with
        no cache from position 0 on. What comes out is what the output head takes, and what the block takes next.
        """
        x = self.combine(hidden, embeddings)
        y: mx.array = self.norm(self.run_layer(x, cache))
        return y

    def combine(self, hidden: mx.array, embeddings: mx.array) -> mx.array:
        """What the layer takes: the projection of both after their norms, the embedding's half first."""
        both = [self.embedding_norm(embeddings), self.hidden_norm(hidden)]
        x: mx.array = self.projection(mx.concatenate(both, axis=-1))
        return x

    def run_layer(self, x: mx.array, cache: LayerCache | None = None) -> mx.array:
        """The decoder layer alone, causal and within its window."""
        mask = create_attention_mask(x, cache, window_size=self.window, return_array=True)
        y: mx.array = self.layer(x, mask=mask, cache=cache)
        return y

    def make_cache(self) -> KVCache | RotatingKVCache:
        """An mlx-lm cache for the block's layer."""
        return KVCache() if self.window is None else RotatingKVCache(max_size=self.window)


@dataclass(frozen=True)
class DraftHead:
    """A block with the two ends that it shares with the target.

    `embed` takes tokens [..] to [.., D], `project` hidden states [.., D] to logits [.., N] over `token_ids`, which
    ascend; None are all tokens of the vocabulary. `promise` tells how it drafted where that was measured.
    """

    block: MtpBlock
    embed: Callable[[mx.array], mx.array]
    project: Callable[[mx.array], mx.array]
    token_ids: npt.NDArray[np.int32] | None
    promise: Promise | None = None


def draft_head(model: nn.Module, block: MtpBlock, token_ids: npt.NDArray[np.int32] | None = None) -> DraftHead:
    """The head of this mlx-lm model with that block.

    The product over some tokens alone copies their weights, in four bits and as native ones if the model's layers are:
    make the head once they are.
    """
    project = head_of(model) if token_ids is None else head_over(model, token_ids)
    return DraftHead(block, embedding_of(model), project, token_ids)
