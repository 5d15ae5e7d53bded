"""Decoder layers, or a whole model, as one native call, for mlx-lm models of the common Llama and Qwen shape.

Knows what these look like in mlx-lm, and takes none that differ in anything. Knows no cache but its buffers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from mtplx.kernels.layers import NativeEmbedding, NativeLinear, NativeRMSNorm, NativeRoPE
from mtplx.kernels.native_module import native
from mtplx.kernels.rope import inverse_frequencies

Floats: TypeAlias = npt.NDArray[np.float32]  # in host memory

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


@dataclass(frozen=True)
class NativeEntrance:
    """How rows enter that stand for pairs of a token and a hidden state: both normed, the token embedded, and projected
    side by side, the token's half first."""

    embedding: NativeEmbedding
    embedding_norm: NativeRMSNorm
    hidden_norm: NativeRMSNorm
    projection: NativeLinear


@dataclass(frozen=True)
class Decoded:
    """Logits [R, V] of the wanted rows, the hidden states [T, D] of all after the final norm if asked for, and the
    buffers with all rows' keys and values in place."""

    logits: Floats
    hidden: Floats | None
    buffers: list[mx.array]


@dataclass(frozen=True)
class Unevaluated:
    """The same before it is computed. Without a head, the wanted rows' hidden states [R, D] stand for logits."""

    logits: mx.array
    hidden: mx.array | None
    buffers: list[mx.array]

    def evaluated(self) -> Decoded:
        mx.eval(self.logits, self.hidden, self.buffers)
        hidden = None if self.hidden is None else np.asarray(self.hidden)
        return Decoded(np.asarray(self.logits.astype(mx.float32)), hidden, self.buffers)


class NativeLayers:
    """Accelerated decoder layers of mlx-lm's, their final norm and, if native and given, embedding or entrance, and
    output head.

    Raises OtherShapeError if they are of another shape.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        norm: Any,
        *,
        embedding: NativeEmbedding | None = None,
        entrance: NativeEntrance | None = None,
        head: NativeEmbedding | NativeLinear | None = None,
    ) -> None:
        _check_modules(layers)
        embedding = embedding if entrance is None else entrance.embedding
        attention, rope = layers[0].self_attn, layers[0].self_attn.rope
        if not isinstance(rope, NativeRoPE) or rope.scale != 1.0:
            raise OtherShapeError("its positions are scaled")
        if any(getattr(layer, "use_sliding", False) for layer in layers):
            raise OtherShapeError("it attends within a window")
        products = [_products(layer) for layer in layers]
        size = products[0][1].tiles.num_outputs // attention.n_kv_heads
        self.row_like = mx.zeros((2 * len(layers), attention.n_kv_heads, 1, size))  # what a buffer holds of a row
        self._decoder = native.Decoder(
            embedding=None if embedding is None else _embedding(embedding),
            entrance=None if entrance is None else _entrance(entrance, norm.eps),
            layers=[_layer(*each) for each in zip(layers, products, strict=True)],
            final_norm=norm.weight.astype(mx.float32),
            head=None if head is None else projection(head),
            inverse_frequencies=inverse_frequencies(rope.dims, rope.base),
            hidden=norm.weight.size,
            intermediate=layers[0].mlp.gate_proj.tiles.num_outputs,
            num_heads=attention.n_heads,
            num_kv_heads=attention.n_kv_heads,
            head_size=size,
            scale=attention.scale,
            eps=norm.eps,
            rope_in_pairs=rope.traditional,
        )

    def lazily(
        self,
        entering: mx.array,
        rows: Sequence[DecoderRows],
        wanted: Sequence[int],
        buffers: list[mx.array],
        *,
        wants_hidden: bool = False,
    ) -> Unevaluated:
        """What will become of tokens [T] or, where no embedding was given, of rows [T, D].

        `buffers` are, for each entry of `rows`, as `row_buffers` has them, all of float32 or all of float16, with room
        for the rows. They are taken out of the list, and those that nobody else holds are written where they are.
        """
        logits, *updated = self._decoder(entering, _bounds(rows), list(wanted), buffers, wants_hidden, None)
        buffers.clear()  # or they would be held, and copied
        return Unevaluated(logits, updated.pop() if wants_hidden else None, updated)

    def now(
        self,
        tokens: Sequence[int],
        rows: Sequence[DecoderRows],
        wanted: Sequence[int],
        buffers: list[mx.array],
        *,
        states: Floats | None = None,
        wants_hidden: bool = False,
    ) -> Decoded:
        """What becomes of tokens [T] or, with an entrance, of tokens and hidden `states` [T, D]: at once, without what
        a lazy operation costs. `buffers` as for `lazily`, in a list whose entries nobody else holds."""
        logits, hidden = self._decoder.now(list(tokens), _bounds(rows), list(wanted), buffers, wants_hidden, states)
        return Decoded(logits, hidden, buffers)


def _bounds(rows: Sequence[DecoderRows]) -> list[tuple[int, int, int]]:
    return [(each.position, each.start, each.stop) for each in rows]


class NativeDecoder:
    """`model`, an accelerated mlx-lm model, from tokens to logits. Raises OtherShapeError if it is of another shape.

    An embedding or output head that is not native stays the model's own, before and after the native call.
    """

    def __init__(self, model: nn.Module) -> None:
        _check_modules([model])
        embedding = model.model.embed_tokens
        tied = model.args.tie_word_embeddings
        head = embedding if tied else model.lm_head
        has_native_embedding = isinstance(embedding, NativeEmbedding)
        has_native_head = isinstance(head, NativeEmbedding | NativeLinear)
        self._embed = None if has_native_embedding else embedding
        self._project = None if has_native_head else embedding.as_linear if tied else head
        self._layers = NativeLayers(
            model.layers,
            model.model.norm,
            embedding=embedding if has_native_embedding else None,
            head=head if has_native_head else None,
        )
        self.row_like = self._layers.row_like

    def __call__(
        self,
        tokens: Sequence[int],
        rows: Sequence[DecoderRows],
        wanted: Sequence[int],
        buffers: list[mx.array],
        *,
        wants_hidden: bool = False,
    ) -> Decoded:
        """What becomes of tokens [T]. Arguments as for `NativeLayers.now`."""
        if self._embed is None and self._project is None:
            return self._layers.now(tokens, rows, wanted, buffers, wants_hidden=wants_hidden)
        given = mx.array(list(tokens))
        entering = given if self._embed is None else self._embed(given)
        pending = self._layers.lazily(entering, rows, wanted, buffers, wants_hidden=wants_hidden)
        if self._project is not None:
            pending = replace(pending, logits=self._project(pending.logits))
        return pending.evaluated()


def _check_modules(parts: Sequence[Any]) -> None:
    """Raises OtherShapeError unless mlx-lm's modules for the shape define all of these."""
    for part in parts:
        if type(part).__module__ not in _MODULES:
            raise OtherShapeError(f"{type(part).__module__} is not one of {', '.join(_MODULES)}")


def _products(layer: Any) -> list[NativeLinear]:
    """Of queries, keys, values, output, gate, up and down. Raises OtherShapeError if they cannot be taken over."""
    products = [getattr(layer.self_attn, name) for name in _ATTENTION]
    products += [getattr(layer.mlp, name) for name in _FEED_FORWARD]
    if not all(isinstance(product, NativeLinear) for product in products):
        raise OtherShapeError("not all of its products are native")
    if len({product.tiles.group_size for product in products}) > 1:
        raise OtherShapeError("its weights are quantized in groups of several sizes")
    return products


def _weight(norm: Any) -> mx.array:
    array: mx.array = norm.weight
    return array.astype(mx.float32)


def _entrance(entrance: NativeEntrance, eps: float) -> Any:
    """Raises OtherShapeError if its norms are not like those of the layers, or groups go across its two halves."""
    if {entrance.embedding_norm.eps, entrance.hidden_norm.eps} != {eps}:
        raise OtherShapeError("its norms differ in what keeps them from dividing by 0")
    if entrance.embedding.dims % entrance.projection.tiles.group_size:
        raise OtherShapeError("its projection is quantized in groups across its halves")
    return native.Entrance(
        embedding_norm=_weight(entrance.embedding_norm),
        hidden_norm=_weight(entrance.hidden_norm),
        projection=projection(entrance.projection),
    )


def _layer(layer: Any, products: Sequence[NativeLinear]) -> Any:
    return native.DecoderLayer(
        [projection(product) for product in products],
        input_norm=_weight(layer.input_layernorm),
        post_norm=_weight(layer.post_attention_layernorm),
        query_norm=_weight(layer.self_attn.q_norm) if "q_norm" in layer.self_attn else None,
        key_norm=_weight(layer.self_attn.k_norm) if "k_norm" in layer.self_attn else None,
    )


def _embedding(layer: NativeEmbedding) -> Any:
    return native.Embedding(
        layer.weight,
        layer.scales.astype(mx.float32),
        layer["biases"].astype(mx.float32),
        bits=layer.bits,
        group_size=layer.group_size,
        size=layer.dims,
    )


def projection(linear: NativeLinear | NativeEmbedding) -> Any:
    """A product as native code takes it. An embedding's is that of the output head."""
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
