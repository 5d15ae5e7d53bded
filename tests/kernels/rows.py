"""What every kernel that works row by row must keep: a row's bits are its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mlx.core as mx
import numpy as np

from mtplx.kernels.native_module import native

COUNTS = (1, 2, 3, 5, 8, 17, 64, 255, 1024)
THREADS = (1, 2)


@contextmanager
def threads(num_threads: int) -> Iterator[None]:
    before = native.num_threads()
    native.set_num_threads(num_threads)
    try:
        yield
    finally:
        native.set_num_threads(before)


@contextmanager
def as_floats() -> Iterator[None]:
    """Within, products take their inputs as floats on any machine."""
    chosen = native.input_bytes()
    native.set_input_bytes(0)
    try:
        yield
    finally:
        native.set_input_bytes(chosen)


def bits(array: mx.array) -> np.ndarray:
    """float32 [...] as integers, so that -0 is not 0 and NaN is itself."""
    return np.array(array).view(np.uint32)


def assert_rows_are_exact(kernel: Callable[[mx.array], mx.array], x: mx.array) -> None:
    """The first rows of x [1024, ...] give the same bits alone as in any number, on one thread and on two."""
    with threads(1):
        alone = np.stack([bits(kernel(x[i : i + 1]))[0] for i in range(x.shape[0])])
    for num_threads in THREADS:
        for count in COUNTS:
            with threads(num_threads):
                together = bits(kernel(x[:count]))
            np.testing.assert_array_equal(together, alone[:count], err_msg=f"{count} rows, {num_threads} threads")


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> mx.array:
    """Normally distributed float32 [shape]."""
    return mx.array(np.random.default_rng(seed).normal(scale=scale, size=shape).astype(np.float32))


def strided_views(x: mx.array) -> dict[str, mx.array]:
    """x [M, N] many times, in memory that is not one row after another."""
    n = x.shape[1]
    columns = mx.contiguous(x.T)
    wide = mx.concatenate([x, x + 1], axis=1)
    mx.eval(columns, wide)
    return {
        "transposed": columns.T,
        "half of wider rows": wide[:, :n],
        "every other row": mx.contiguous(mx.repeat(x, 2, axis=0))[::2],
        "every other column": mx.contiguous(mx.repeat(x, 2, axis=1))[:, ::2],
        "backwards": mx.contiguous(x[::-1])[::-1],
    }
