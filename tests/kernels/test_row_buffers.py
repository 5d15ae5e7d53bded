"""Buffers of a native decoder's rows: what goes in comes out, and keys lie in tiles."""

import mlx.core as mx
import pytest

from mtplx.kernels.row_buffers import TILE_ROWS, join_rows, move_rows, read_rows
from tests.kernels.availability import needs_native
from tests.kernels.rows import random

pytestmark = needs_native

SIZES = [4, 64, 80]  # of heads
TYPES = [mx.float32, mx.float16]


def rows(count: int, size: int, seed: int = 0, row_type: mx.Dtype = mx.float32) -> mx.array:
    """Of two layers with three heads."""
    return random(4, 3, count, size, seed=seed).astype(row_type)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("counts", [[0], [1], [16], [5, 30, 1], [48]])
@pytest.mark.parametrize("row_type", TYPES)
def test_rows_come_out_as_they_went_in(counts: list[int], size: int, row_type: mx.Dtype) -> None:
    pieces = [rows(count, size, seed, row_type) for seed, count in enumerate(counts)]
    buffer = join_rows(pieces, 48)
    everything = mx.concatenate(pieces, axis=2)
    total = sum(counts)
    assert buffer.shape == (4, 3, 48, size)
    assert mx.array_equal(read_rows(buffer, 0, total), everything)
    assert mx.array_equal(read_rows(buffer, total // 3, total), everything[:, :, total // 3 :])


@pytest.mark.parametrize("num_rows", [0, 7, 16, 33])
@pytest.mark.parametrize("row_type", TYPES)
def test_the_first_rows_move_to_where_more_have_room(num_rows: int, row_type: mx.Dtype) -> None:
    given = rows(33, 64, row_type=row_type)
    moved = move_rows(join_rows([given], 48), num_rows, 160)
    assert moved.shape[2] == 160
    assert mx.array_equal(read_rows(moved, 0, num_rows), given[:, :, :num_rows])


@pytest.mark.parametrize("size", SIZES)
def test_keys_lie_in_tiles_and_values_row_by_row(size: int) -> None:
    given = rows(32, size)
    buffer = join_rows([given], 32)
    tiles = given[0::2].reshape(2, 3, 2, TILE_ROWS, size).swapaxes(3, 4)
    assert mx.array_equal(buffer[0::2].reshape(2, 3, 2, size, TILE_ROWS), tiles)
    assert mx.array_equal(buffer[1::2], given[1::2])


def test_a_tile_is_0_beyond_its_first_rows() -> None:
    tile = join_rows([rows(3, 64)], 16)[0::2].reshape(2, 3, 64, TILE_ROWS)
    assert not mx.any(tile[..., 3:])


def test_rows_of_views_are_taken_for_what_they_show() -> None:
    given = rows(40, 64)
    view = given[:, :, 10:20]
    assert mx.array_equal(read_rows(join_rows([view], 16), 0, 10), view)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="room for"):
        join_rows([rows(17, 4)], 16)
    with pytest.raises(ValueError, match="whole tiles"):
        join_rows([rows(3, 4)], 20)
    with pytest.raises(ValueError, match="alike"):
        join_rows([rows(3, 4), rows(3, 5)], 16)
    with pytest.raises(ValueError, match="alike"):
        join_rows([rows(3, 4), rows(3, 4, row_type=mx.float16)], 16)
    with pytest.raises(ValueError, match="room for"):
        move_rows(join_rows([rows(3, 4)], 16), 17, 32)
    with pytest.raises(ValueError, match="before they begin"):
        read_rows(join_rows([rows(3, 4)], 16), 3, 2)
