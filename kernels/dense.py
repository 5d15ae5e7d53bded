"""Products with weights that are numbers, y = x Wᵀ: the reference in MLX's own operations, and the native form.

Knows the layout that native products want. Knows no layer and no model.
"""

from dataclasses import dataclass

import mlx.core as mx

from mtplx.kernels.linear import BLOCK, tiled
from mtplx.kernels.native_module import native

DTYPES = (mx.float32, mx.float16, mx.bfloat16)


@dataclass(frozen=True)
class DenseTiles:
    """Weights [N, K] as native products read them, 16 outputs side by side; filled up to whole tiles and blocks."""

    values: mx.array  # float32, float16 or bfloat16 [tiles, blocks * 32, 16]
    num_inputs: int
    num_outputs: int

    def rows(self) -> mx.array:
        """The weights as they were, [N, K]."""
        return self.values.swapaxes(1, 2).reshape(-1, self.values.shape[1])[: self.num_outputs, : self.num_inputs]


def reference_dense_linear(x: mx.array, weight: mx.array) -> mx.array:
    """x [..., K] times weight [N, K], transposed, in float32: [..., N]. It defines the product."""
    return x.astype(mx.float32) @ weight.astype(mx.float32).T


def tile_dense(weight: mx.array) -> DenseTiles:
    """Rearrange weights [N, K], in the type they have."""
    num_outputs, num_inputs = weight.shape
    return DenseTiles(tiled(mx.pad(weight, [(0, 0), (0, -num_inputs % BLOCK)])), num_inputs, num_outputs)


def dense_linear(x: mx.array, weights: DenseTiles) -> mx.array:
    """x [..., K] times the weights, natively: float32 [..., N]. A row's bits do not depend on the other rows."""
    return native.dense_linear(x, weights.values, num_outputs=weights.num_outputs)
