"""The parts of an mlx-lm model that a draft head shares with it or starts from: embedding, output head, last layer.

Knows how mlx-lm's models hold them, with layers of any precision, native ones too. Knows no particular model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from mtplx.kernels.accelerate import is_accelerated
from mtplx.kernels.layers import NativeDense, NativeLinear, NativeSwitchLinear, native_layer

_GUESSING_BITS, _GROUP_SIZE = 4, 32


@dataclass(frozen=True)
class EmbeddingOf:
    """Embeds tokens [...] as [..., D] as a model does."""

    model: nn.Module
    path: Sequence[str]

    @property
    def module(self) -> Any:
        """Looked up whenever it is asked for: layers may be swapped for native ones later."""
        return at(self.model, self.path)

    def __call__(self, tokens: mx.array) -> mx.array:
        embedded: mx.array = self.module(tokens)
        return embedded


def embedding_of(model: nn.Module) -> EmbeddingOf:
    """The model's embedding. What the model does to embeddings afterwards, as to scale them, is left out."""
    return EmbeddingOf(model, _embedding_path(model))


def head_of(model: nn.Module) -> Callable[[mx.array], mx.array]:
    """The product [..., D] to [..., V] of the output head. What the model does to logits afterwards is left out."""
    path = _head_path(model)
    if path is not None:
        return lambda hidden: at(model, path)(hidden)
    embedding = _embedding_path(model)
    return lambda hidden: at(model, embedding).as_linear(hidden)


def head_over(model: nn.Module, token_ids: npt.NDArray[np.int32]) -> nn.Module:
    """The output head's product over a part of the vocabulary [..., D] to [..., N], in four bits; native if the model
    is. It serves for guesses, and is the largest part of what a guess takes."""
    head = at(model, _head_path(model) or _embedding_path(model))
    rows = mx.array(token_ids)
    linear: nn.Module = nn.Linear(1, 1, bias=False)
    linear.weight = plain_weight(head)[rows]
    if linear.weight.shape[-1] % _GROUP_SIZE == 0:
        linear = nn.QuantizedLinear.from_linear(linear, _GROUP_SIZE, _GUESSING_BITS)
    if "bias" in head:
        linear.bias = head.bias[rows]
    mx.eval(linear.parameters())
    swap = native_layer(linear) if is_accelerated(model) else None
    return linear if swap is None else swap


def head_rows(model: nn.Module, token_ids: npt.NDArray[np.int32]) -> mx.array:
    """The output head's weights of some tokens as numbers, [N, D]."""
    head = at(model, _head_path(model) or _embedding_path(model))
    return plain_weight(head)[mx.array(token_ids)]


def hidden_size(model: nn.Module) -> int:
    """D, the width of an embedding."""
    embedding = at(model, _embedding_path(model))
    if "scales" in embedding:
        return int(embedding["scales"].shape[-1] * embedding.group_size)
    return int(embedding.weight.shape[-1])


def num_embeddings(model: nn.Module) -> int:
    """Tokens that the model embeds, with those that only fill up its vocabulary."""
    return int(at(model, _embedding_path(model)).weight.shape[0])


def plain_weight(module: Any) -> mx.array:
    """The weights of a layer as numbers, whatever form they are held in."""
    match module:
        case NativeSwitchLinear():
            rows = module.tiles.rows()
            return rows.reshape(module.num_experts, -1, rows.shape[-1])[:, : module.output_dims]
        case NativeLinear() | NativeDense():
            return module.tiles.rows()
        case _ if "scales" in module:
            form = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}
            return mx.dequantize(module["weight"], module["scales"], module.get("biases"), **form)
        case _:
            weight: mx.array = module["weight"]
            return weight


def plain_weights(module: nn.Module) -> dict[str, mx.array]:
    """All parameters of a module as numbers in float32, named as mlx-lm's own layers name them."""
    weights: dict[str, mx.array] = {}
    for path, part in module.named_modules():
        arrays = {name: value for name, value in part.items() if isinstance(value, mx.array) and name[0] != "_"}
        if "weight" in arrays or hasattr(part, "tiles"):
            arrays = {name: value for name, value in arrays.items() if name not in ("scales", "biases")}
            arrays["weight"] = plain_weight(part)
        weights |= {f"{path}.{name}" if path else name: value for name, value in arrays.items()}
    return {name: value.astype(mx.float32) for name, value in weights.items()}


def fresh_last_layer(model: nn.Module) -> nn.Module:
    """A decoder layer made as the model's own last one, without its weights."""
    # A model's arrays take memory only once they are looked at.
    kind: Any = type(model)
    layer: nn.Module = kind(model.args).layers[-1]
    layer.eval()
    return layer


def at(model: nn.Module, path: Sequence[str]) -> Any:
    """The module that these names lead to."""
    return reduce(getattr, path, model)


def _embedding_path(model: nn.Module) -> list[str]:
    """Of the embedding with the most rows, which is that of the tokens."""
    kinds = nn.Embedding | nn.QuantizedEmbedding
    found = [
        (int(module["weight"].shape[0]), name) for name, module in model.named_modules() if isinstance(module, kinds)
    ]
    most = max(rows for rows, _ in found)
    # Some models embed tokens once more, for each of their layers.
    name: str = next(name for rows, name in found if rows == most and not name.endswith("per_layer"))
    return name.split(".")


def _head_path(model: nn.Module) -> list[str] | None:
    """Of the output head; None where the embedding is used the other way round."""
    names = (name for name, _ in model.named_modules() if name.rpartition(".")[2] == "lm_head")
    name = next(names, None)
    return None if name is None else name.split(".")
