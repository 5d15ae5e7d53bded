"""Products with quantized weights, y = x Wᵀ: the reference in MLX's own operations, and the native form.

Knows MLX's affine quantization and the layout that native products want. Knows no layer and no model.
"""

from dataclasses import dataclass

import mlx.core as mx

from mtplx.kernels.native_module import native

LANES = 16  # outputs side by side in a tile
BLOCK = 32  # weights whose words fill whole lanes
BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True)
class TiledWeights:
    """Weights [N, K] as native products read them, 16 outputs side by side; N is filled up to whole tiles."""

    words: mx.array  # uint32 [tiles * K / 32 * bits * 16 + 16]; native code may read a little beyond the last weight
    scales: mx.array  # float32 [tiles, K / group, 16]
    biases: mx.array  # float32 [tiles, K / group, 16]
    bits: int
    group_size: int
    num_outputs: int

    @property
    def num_inputs(self) -> int:
        return self.scales.shape[1] * self.group_size

    def rows(self) -> mx.array:
        """The weights as numbers, float32 [N, K]."""
        return mx.dequantize(*self.packed(), group_size=self.group_size, bits=self.bits)

    def packed(self) -> tuple[mx.array, mx.array, mx.array]:
        """The weights as `mx.quantize` gives them: words, scales and biases, a row for each output."""
        words = self.words[:-LANES].reshape(self.scales.shape[0], -1, LANES)
        packed, scales, biases = (_untiled(each, self.num_outputs) for each in (words, self.scales, self.biases))
        return packed, scales, biases


def reference_quantized_linear(
    x: mx.array, weight: mx.array, scales: mx.array, biases: mx.array, *, bits: int, group_size: int
) -> mx.array:
    """x [..., K] times quantized weights, as `mx.quantize` gives them, transposed: [..., N]. It defines the product."""
    return mx.quantized_matmul(
        x, weight, scales, biases, transpose=True, group_size=group_size, bits=bits, mode="affine"
    )


def tile(weight: mx.array, scales: mx.array, biases: mx.array, *, bits: int, group_size: int) -> TiledWeights:
    """Rearrange quantized weights [N, K * bits / 32] and their scales and biases [N, K / group]."""
    return TiledWeights(
        mx.pad(tiled(weight).flatten(), (0, LANES)),
        tiled(scales.astype(mx.float32)),
        tiled(biases.astype(mx.float32)),
        bits,
        group_size,
        weight.shape[0],
    )


def quantized_linear(x: mx.array, weights: TiledWeights) -> mx.array:
    """x [..., K] times the weights, natively: float32 [..., N]. A row's bits do not depend on the other rows."""
    return native.quantized_linear(
        x,
        weights.words,
        weights.scales,
        weights.biases,
        bits=weights.bits,
        group_size=weights.group_size,
        num_outputs=weights.num_outputs,
    )


def tiled(array: mx.array) -> mx.array:
    """[N, columns] to [tiles, columns, 16], filled up with zeros."""
    padded = mx.pad(array, [(0, -array.shape[0] % LANES), (0, 0)])
    return mx.contiguous(padded.reshape(-1, LANES, array.shape[1]).transpose(0, 2, 1))


def _untiled(array: mx.array, num_outputs: int) -> mx.array:
    """[tiles, columns, 16] to [N, columns]: `tiled` undone."""
    return array.swapaxes(1, 2).reshape(-1, array.shape[1])[:num_outputs]
