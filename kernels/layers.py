"""mlx-lm layers whose work native kernels do. Each takes the place of one of `mlx.nn`'s, and gives the same values.

Knows layers; knows no model.
"""

import mlx.core as mx
import mlx.nn as nn

from mtplx.kernels.linear import BITS, BLOCK, GROUP_SIZES, TiledWeights, quantized_linear, tile


def can_be_native(layer: nn.Module) -> bool:
    """Whether a native product can do this layer's."""
    return (
        isinstance(layer, nn.QuantizedLinear | nn.QuantizedEmbedding)
        and layer.mode == "affine"
        and layer.bits in BITS
        and layer.group_size in GROUP_SIZES
        and layer.weight.shape[1] * 32 // layer.bits % BLOCK == 0
    )


def _tiles_of(layer: nn.Module) -> TiledWeights:
    tiles = tile(layer.weight, layer.scales, layer.biases, bits=layer.bits, group_size=layer.group_size)
    mx.eval(tiles.words, tiles.scales, tiles.biases)
    return tiles


class NativeLinear(nn.Module):
    """In the place of `nn.QuantizedLinear`, whose weights it takes over in a layout of its own."""

    def __init__(self, layer: nn.QuantizedLinear) -> None:
        super().__init__()
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
