"""Products in which each row chooses its weights among those of many experts: the reference, and the native form.

Knows MLX's gathered products and the layouts of `linear` and `dense`. Knows no layer and no model.
"""

import mlx.core as mx

from mtplx.kernels.dense import DenseTiles, tile_dense
from mtplx.kernels.linear import LANES, TiledWeights, tile
from mtplx.kernels.native_module import native

# Of all experts E, one after the other, N outputs each filled up to whole tiles.
Experts = TiledWeights | DenseTiles


def reference_gathered_quantized_linear(
    x: mx.array,
    indices: mx.array,
    weight: mx.array,
    scales: mx.array,
    biases: mx.array,
    *,
    bits: int,
    group_size: int,
) -> mx.array:
    """x [..., M, K] times quantized weights [E, N, K], transposed, of the experts [...]: [..., M, N]. It defines the
    product; the axes before the last two and those of the indices are broadcast to one another."""
    return mx.gather_qmm(
        x, weight, scales, biases, rhs_indices=indices, transpose=True, group_size=group_size, bits=bits, mode="affine"
    )


def reference_gathered_dense_linear(x: mx.array, indices: mx.array, weight: mx.array) -> mx.array:
    """The same with weights [E, N, K] that are numbers, in float32."""
    return mx.gather_mm(x.astype(mx.float32), weight.astype(mx.float32).swapaxes(-1, -2), rhs_indices=indices)


def tile_experts(weight: mx.array, scales: mx.array, biases: mx.array, *, bits: int, group_size: int) -> TiledWeights:
    """Rearrange quantized weights [E, N, K * bits / 32] and their scales and biases [E, N, K / group]."""
    return tile(_stacked(weight), _stacked(scales), _stacked(biases), bits=bits, group_size=group_size)


def tile_dense_experts(weight: mx.array) -> DenseTiles:
    """Rearrange weights [E, N, K], in the type they have."""
    return tile_dense(_stacked(weight))


def gathered_linear(x: mx.array, indices: mx.array, experts: Experts, num_outputs: int) -> mx.array:
    """x [..., M, K] times the weights of the experts [...], of `num_outputs` each, natively: float32 [..., M, N].

    A row's bits do not depend on the other rows and their experts. An index must be that of an expert.
    """
    if isinstance(experts, DenseTiles):
        return native.gathered_dense_linear(x, indices, experts.values, num_outputs=num_outputs)
    return native.gathered_quantized_linear(
        x,
        indices,
        experts.words,
        experts.scales,
        experts.biases,
        bits=experts.bits,
        group_size=experts.group_size,
        num_outputs=num_outputs,
    )


def _stacked(weight: mx.array) -> mx.array:
    """[E, N, columns] to [E * N, columns], N filled up with zeros to whole tiles."""
    padded = mx.pad(weight, [(0, 0), (0, -weight.shape[1] % LANES), (0, 0)])
    return padded.reshape(-1, weight.shape[2])
