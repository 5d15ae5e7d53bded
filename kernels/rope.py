"""Rotary position embedding (Su et al., 2104.09864), with a position of its own for each sequence.

`rope` is native where that is possible, and else the reference, which defines it: MLX's own. Natively arithmetic is
float32 whatever the arrays are, and an angle has the very bits that MLX gives it. Knows no layer and no scaling scheme.
"""

import math
from functools import lru_cache

import mlx.core as mx
import numpy as np

from mtplx.kernels.native_module import is_available, native


def rope(
    x: mx.array,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: int | mx.array,
    freqs: mx.array | None = None,
) -> mx.array:
    """Rotates the first `dims` values of each head of x [B, ..., L, D]; token l of sequence b is at offset[b] + l.

    `traditional` rotates neighbours, and else halves. Either `base` gives the frequencies or `freqs` [dims / 2] their
    reciprocals, as `mx.fast.rope` has it.
    """
    if not is_available():
        return reference_rope(x, dims, traditional=traditional, base=base, scale=scale, offset=offset, freqs=freqs)
    y = native.rope(
        x.astype(mx.float32) if x.ndim == 4 else x.astype(mx.float32).reshape(x.shape[0], -1, *x.shape[-2:]),
        mx.array(offset, dtype=mx.int32) if isinstance(offset, int) else offset.astype(mx.int32),
        inverse_frequencies(dims, base, freqs),
        traditional=traditional,
        scale=scale,
    )
    return (y if x.ndim == 4 else y.reshape(x.shape)).astype(x.dtype)


def reference_rope(
    x: mx.array,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: int | mx.array,
    freqs: mx.array | None = None,
) -> mx.array:
    return mx.fast.rope(x, dims, traditional=traditional, base=base, scale=scale, offset=offset, freqs=freqs)


def inverse_frequencies(dims: int, base: float | None, freqs: mx.array | None = None) -> mx.array:
    """What positions are multiplied by, float32 [dims / 2]. Raises ValueError unless one of the two is given.

    In the operations of `mx.fast.rope`, since a last bit of these is many of an angle far from the start.
    """
    if base is not None and freqs is None:
        return _geometric(dims, base)
    if base is None and freqs is not None:
        return mx.reciprocal(freqs.astype(mx.float32))
    raise ValueError("one of base and freqs must be given")


@lru_cache(maxsize=64)
def _geometric(dims: int, base: float) -> mx.array:
    half = dims // 2
    log_base = np.float32(math.log(np.float32(base)))  # MLX takes base, its logarithm and the quotient as floats
    step = mx.array(float(log_base / np.float32(half)), dtype=mx.float32)
    frequencies = mx.exp(mx.arange(0, -half, -1, dtype=mx.float32) * step)
    mx.eval(frequencies)
    return frequencies
