"""Rows of all layers in one piece of memory: there is room for those that are expected, from the first on."""

import mlx.core as mx
import pytest

from mtplx.engine.stacked_cache import StackedCache
from mtplx.kernels.row_buffers import join_rows, read_rows
from tests.kernels.availability import needs_native

pytestmark = needs_native

ROW = mx.zeros((4, 2, 1, 16))  # two layers of two heads


def held(cache: StackedCache, num_rows: int) -> mx.array:
    """The buffer after rows that are numbered from 0."""
    start = cache.end
    buffer = cache.take(num_rows)
    rows = mx.arange(start, start + num_rows, dtype=mx.float32)[:, None]
    known = read_rows(buffer, 0, start)
    buffer = join_rows([known, mx.broadcast_to(rows, (4, 2, num_rows, 16))], buffer.shape[2])
    cache.buffer = buffer
    cache.extend(num_rows)
    cache.commit(num_rows)
    return buffer


def test_the_rows_that_are_expected_find_room_without_a_move() -> None:
    cache = StackedCache(ROW)
    cache.expected_rows = 1000
    capacities = {held(cache, 100).shape[2] for _ in range(10)}
    assert len(capacities) == 1
    assert min(capacities) >= 1000
    assert held(cache, 100).shape[2] >= 1100  # and more come to no harm
    assert cache.read_rows(0, 1100)[0][0, 0, :, 0].tolist() == list(range(1100))


@pytest.mark.parametrize("expected", [0, 700])
def test_rows_that_are_lent_leave_room_for_those_to_come(expected: int) -> None:
    lender, borrower = StackedCache(ROW), StackedCache(ROW)
    held(lender, 300)
    borrower.expected_rows = expected
    borrower.restore(300, [lender.read_rows(0, 200), lender.read_rows(200, 300)], None)
    room = borrower.buffer.shape[2]
    assert room >= max(301, expected)
    assert held(borrower, 700 - 300).shape[2] >= 700
    assert borrower.read_rows(0, 700)[0][3, 1, :, 5].tolist() == list(range(700))
    assert not expected or borrower.buffer.shape[2] == room
