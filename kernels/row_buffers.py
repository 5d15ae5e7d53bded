"""Where a native decoder's rows lie: keys and values of each layer in turn, as [2 L, H, capacity, D], in float32 or
float16.

Keys lie in tiles of 16 rows, each [D, 16], which is how scores want them. Knows how rows get in and out, keys in the
usual order; knows no sequence, and no model.
"""

from collections.abc import Sequence

import mlx.core as mx

from mtplx.kernels.native_module import native

TILE_ROWS = 16


def join_rows(pieces: Sequence[mx.array], capacity: int) -> mx.array:
    """A new buffer with room for `capacity` rows, whole tiles of them, that holds all pieces [2 L, H, n, D] in turn.

    What is beyond them means nothing. Raises ValueError for pieces that are not alike, or have too many rows.
    """
    return native.join_rows(list(pieces), capacity)


def move_rows(buffer: mx.array, num_rows: int, capacity: int) -> mx.array:
    """A new buffer with room for `capacity` rows, whole tiles of them, that holds the first rows of another."""
    return native.move_rows(buffer, num_rows, capacity)


def read_rows(buffer: mx.array, start: int, end: int) -> mx.array:
    """Rows `start` up to `end` of a buffer, as an array [2 L, H, n, D] of their own."""
    return native.read_rows(buffer, start, end)
