"""A model's decoder layers as one native call, for mlx-lm models of the common Llama and Qwen shape.

Knows what such a model looks like in mlx-lm, and takes none that differs in anything. Knows no cache but its buffers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mtplx.kernels.layers import NativeLinear, NativeRoPE
from mtplx.kernels.native_module import native
from mtplx.kernels.rope import inverse_frequencies

_MODULES = ("mlx_lm.models.llama", "mlx_lm.models.qwen2", "mlx_lm.models.qwen3")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")


class OtherShapeError(Exception):
    """What keeps a model from running as a native decoder, in words for a person."""


@dataclass(frozen=True)
class DecoderRows:
    """The rows of one sequence in the batch: `start` to `stop` of T, at `position` and after in the sequence."""

    position: int
    start: int
    stop: int


class NativeDecoder:
    """The decoder layers of `model`, an accelerated mlx-lm model. Raises OtherShapeError if it is of another shape."""

    def __init__(self, model: nn.Module) -> None:
        layers = model.layers
        if type(model).__module__ not in _MODULES:
            raise OtherShapeError(f"{type(model).__module__} is not one of {', '.join(_MODULES)}")
        attention, rope = layers[0].self_attn, layers[0].self_attn.rope
        if not isinstance(rope, NativeRoPE) or rope.scale != 1.0:
            raise OtherShapeError("its positions are scaled")
        if any(getattr(layer, "use_sliding", False) for layer in layers):
            raise OtherShapeError("it attends within a window")
        products = [_products(layer) for layer in layers]
        size = products[0][1].tiles.num_outputs // attention.n_kv_heads
        self.rows_like = mx.zeros((1, attention.n_kv_heads, 1, size))  # what the buffers hold of a row
        self._decoder = native.Decoder(
            [_layer(*each) for each in zip(layers, products, strict=True)],
            inverse_frequencies(rope.dims, rope.base),
            hidden=layers[0].input_layernorm.weight.size,
            intermediate=layers[0].mlp.gate_proj.tiles.num_outputs,
            num_heads=attention.n_heads,
            num_kv_heads=attention.n_kv_heads,
            head_size=size,
            scale=attention.scale,
            eps=layers[0].input_layernorm.eps,
            rope_in_pairs=rope.traditional,
        )

    def __call__(
        self, hidden: mx.array, rows: Sequence[DecoderRows], buffers: Sequence[mx.array]
    ) -> tuple[mx.array, list[mx.array]]:
        """The layers' output [T, D] for the embedded rows, and the buffers with the rows' keys and values in place.

        `buffers` are, for each entry of `rows`, keys and values [1, H, capacity, size] of each layer, float32, with
        room for the rows. Those that nobody else holds are written where they are.
        """
        given = [(each.position, each.start, each.stop) for each in rows]
        hidden, *updated = self._decoder(hidden, given, list(buffers))
        return hidden, updated


def _products(layer: Any) -> list[NativeLinear]:
    """Of queries, keys, values, output, gate, up and down. Raises OtherShapeError if they cannot be taken over."""
    products = [getattr(layer.self_attn, name) for name in _ATTENTION]
    products += [getattr(layer.mlp, name) for name in _FEED_FORWARD]
    if not all(isinstance(product, NativeLinear) for product in products):
        raise OtherShapeError("not all of its products are native")
    if len({product.tiles.group_size for product in products}) > 1:
        raise OtherShapeError("its weights are quantized in groups of several sizes")
    return products


def _layer(layer: Any, products: Sequence[NativeLinear]) -> Any:
    def weight(norm: Any) -> mx.array:
        array: mx.array = norm.weight
        return array.astype(mx.float32)

    return native.DecoderLayer(
        [_projection(product) for product in products],
        input_norm=weight(layer.input_layernorm),
        post_norm=weight(layer.post_attention_layernorm),
        query_norm=weight(layer.self_attn.q_norm) if "q_norm" in layer.self_attn else None,
        key_norm=weight(layer.self_attn.k_norm) if "k_norm" in layer.self_attn else None,
    )


def _projection(linear: NativeLinear) -> Any:
    tiles = linear.tiles
    return native.Projection(
        tiles.words,
        tiles.scales,
        tiles.biases,
        bits=tiles.bits,
        group_size=tiles.group_size,
        num_outputs=tiles.num_outputs,
        bias=linear.bias if "bias" in linear else None,
    )
