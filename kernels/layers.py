"""mlx-lm layers whose work native kernels do. Each takes the place of one of `mlx.nn`'s, and gives the same values.

Knows layers; knows no model.
"""

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from mtplx.kernels.dense import DTYPES, DenseTiles, dense_linear, tile_dense
from mtplx.kernels.gather import Experts, gathered_linear, tile_dense_experts, tile_experts
from mtplx.kernels.linear import BITS, BLOCK, GROUP_SIZES, TiledWeights, quantized_linear, tile
from mtplx.kernels.norm import layer_norm, rms_norm
from mtplx.kernels.rope import rope

_MAX_WEIGHTS = 1 << 30  # of one layer: settled memory is counted in 32 bits


def _tiles_of(layer: nn.Module) -> TiledWeights:
    tiles = tile(layer.weight, layer.scales, layer.biases, bits=layer.bits, group_size=layer.group_size)
    mx.eval(tiles.words, tiles.scales, tiles.biases)
    return tiles


class NativeLinear(nn.Module):
    """In the place of `nn.QuantizedLinear`, whose weights it takes over in a layout of its own."""

    def __init__(self, layer: nn.QuantizedLinear) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tiles = _tiles_of(layer)
        if "bias" in layer:
            self.bias = layer.bias
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        y = quantized_linear(x, self.tiles)
        return (y + self.bias if "bias" in self else y).astype(x.dtype)


class NativeEmbedding(nn.QuantizedEmbedding):
    """In the place of `nn.QuantizedEmbedding`: the same look-up, and native products when it is the output head."""

    def __init__(self, layer: nn.QuantizedEmbedding) -> None:
        nn.Module.__init__(self)
        self.weight, self.scales, self.biases = layer.weight, layer.scales, layer.biases
        self.group_size, self.bits, self.mode = layer.group_size, layer.bits, layer.mode
        self.num_embeddings, self.dims = layer.num_embeddings, layer.dims
        self.tiles = _tiles_of(layer)
        self.freeze()

    def as_linear(self, x: mx.array) -> mx.array:
        return quantized_linear(x, self.tiles).astype(x.dtype)


class NativeDense(nn.Module):
    """In the place of `nn.Linear`, whose weights it takes over in a layout of its own."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tiles = tile_dense(layer.weight)
        mx.eval(self.tiles.values)
        if "bias" in layer:
            self.bias = layer.bias
        self.freeze()

    @property
    def weight(self) -> mx.array:
        """The weights [N, K], which some models look into, put together anew."""
        return self.tiles.rows()

    def __call__(self, x: mx.array) -> mx.array:
        y = dense_linear(x, self.tiles)
        return (y + self.bias if "bias" in self else y).astype(mx.result_type(x, self.tiles.values))


class NativeSwitchLinear(nn.Module):
    """In the place of mlx-lm's `QuantizedSwitchLinear` and `SwitchLinear`, whose weights it takes over in a layout of
    its own."""

    def __init__(self, layer: QuantizedSwitchLinear | SwitchLinear) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_experts, self.output_dims = layer.num_experts, layer.output_dims
        if isinstance(layer, SwitchLinear):
            self.tiles: Experts = tile_dense_experts(layer.weight)
            mx.eval(self.tiles.values)
        else:
            form = {"bits": layer.bits, "group_size": layer.group_size}
            self.tiles = tile_experts(layer["weight"], layer["scales"], layer["biases"], **form)
            mx.eval(self.tiles.words, self.tiles.scales, self.tiles.biases)
        if "bias" in layer:
            self.bias = layer.bias
        self.freeze()

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """x [..., M, K] and the experts [...] to [..., M, N]; the order of the experts makes no difference here."""
        y = gathered_linear(x, indices, self.tiles, self.output_dims)
        if "bias" in self:
            y = y + mx.expand_dims(self.bias[indices], -2)
        return y.astype(mx.result_type(x, self.tiles.values) if isinstance(self.tiles, DenseTiles) else x.dtype)


class NativeRMSNorm(nn.Module):
    """In the place of `nn.RMSNorm`."""

    def __init__(self, layer: nn.RMSNorm) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weight, self.eps = layer.weight, layer.eps
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        return rms_norm(x, self.weight, self.eps)


class NativeLayerNorm(nn.Module):
    """In the place of `nn.LayerNorm`."""

    def __init__(self, layer: nn.LayerNorm) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dims, self.eps = layer.dims, layer.eps
        for name in ("weight", "bias"):
            if name in layer:
                self[name] = layer[name]
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        return layer_norm(x, self.get("weight"), self.get("bias"), self.eps)


class NativeRoPE(nn.Module):
    """In the place of `nn.RoPE`."""

    def __init__(self, layer: nn.RoPE) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dims, self.traditional, self.base, self.scale = layer.dims, layer.traditional, layer.base, layer.scale

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        return rope(x, self.dims, traditional=self.traditional, base=self.base, scale=self.scale, offset=offset)


def native_layer(layer: nn.Module) -> nn.Module | None:
    """The native layer to take this one's place; None if there is none for it."""
    # By the very type: a subclass may do something else.
    if type(layer) is nn.QuantizedLinear and _is_supported(layer):
        return NativeLinear(layer)
    if type(layer) is nn.QuantizedEmbedding and _is_supported(layer):
        return NativeEmbedding(layer)
    if type(layer) is nn.Linear and _is_supported_dense(layer.weight):
        return NativeDense(layer)
    if type(layer) is QuantizedSwitchLinear and layer.global_scale is None and _is_supported(layer):
        return NativeSwitchLinear(layer)
    if type(layer) is SwitchLinear and _is_supported_dense(layer.weight):
        return NativeSwitchLinear(layer)
    if type(layer) is nn.RMSNorm:
        return NativeRMSNorm(layer)
    if type(layer) is nn.LayerNorm:
        return NativeLayerNorm(layer)
    if type(layer) is nn.RoPE:
        return NativeRoPE(layer)
    return None


def _is_supported(layer: nn.QuantizedLinear | nn.QuantizedEmbedding | QuantizedSwitchLinear) -> bool:
    num_inputs = layer.weight.shape[-1] * 32 // layer.bits
    return layer.mode == "affine" and layer.bits in BITS and layer.group_size in GROUP_SIZES and num_inputs % BLOCK == 0


def _is_supported_dense(weight: mx.array) -> bool:
    # With less than a block of inputs there is nothing to gain; Gemma 3n, for one, writes such weights in every pass.
    return weight.dtype in DTYPES and weight.shape[-1] >= BLOCK and weight.size < _MAX_WEIGHTS
