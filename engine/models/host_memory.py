"""From MLX's arrays to numbers that Python code reads."""

import mlx.core as mx
import numpy as np
import numpy.typing as npt


def in_host_memory(array: mx.array) -> npt.NDArray[np.float32]:
    """An array as float32: in the same memory where it is that already, and there to stay."""
    return np.asarray(array.astype(mx.float32))
