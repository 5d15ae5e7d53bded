"""Key-value buffers keep what rows can see, and forget without a trace."""

import mlx.core as mx
import pytest

from mtplx.engine.cache import KeyValueBuffer, RowCache
from mtplx.engine.errors import CacheStateError


def rows(first: int, count: int) -> mx.array:
    """[1, 2, count, 4], each row filled with its own number."""
    return mx.broadcast_to(mx.arange(first, first + count, dtype=mx.float32)[None, None, :, None], (1, 2, count, 4))


def numbers(array: mx.array) -> list[float]:
    return array[0, 0, :, 0].tolist()


def test_rows_come_back_in_order_whatever_the_steps_they_came_in() -> None:
    buffer = KeyValueBuffer()
    position = 0
    for count in (1, 300, 7, 256, 500):
        buffer.write(position, rows(position, count), -rows(position, count))
        position += count
    keys, values = buffer.read(0, position)
    assert numbers(keys) == list(range(position))
    assert numbers(values) == [-number for number in range(position)]


def test_writing_at_an_earlier_position_replaces_what_was_there() -> None:
    buffer = KeyValueBuffer()
    buffer.write(0, rows(0, 10), rows(0, 10))
    buffer.write(6, rows(100, 2), rows(100, 2))
    assert numbers(buffer.read(0, 8)[0]) == [0, 1, 2, 3, 4, 5, 100, 101]


def test_a_window_lets_go_of_what_no_row_can_see_and_of_nothing_else() -> None:
    buffer = KeyValueBuffer(window=5)
    for position in range(0, 1200, 4):
        buffer.write(position, rows(position, 4), rows(position, 4))
        # Two of the four rows are committed, the others dropped; then come two others in their place.
        for end in (position + 2, position + 4):
            buffer.trim(end)
            visible = range(max(0, end - 4), end)  # to the row at `end`, which is the fifth itself
            assert buffer.first_visible(end) == visible.start
            for part in buffer.read(visible.start, end):
                assert numbers(part) == list(visible)
            buffer.write(position + 2, rows(position + 2, 2), rows(position + 2, 2))
    assert buffer.first > 0
    assert buffer.keys.shape[2] < 1024
    with pytest.raises(CacheStateError, match="are gone"):
        buffer.read(0, 10)


def test_arrays_read_before_a_write_do_not_change_with_it() -> None:
    buffer = KeyValueBuffer()
    buffer.write(0, rows(0, 4), rows(0, 4))
    before, _ = buffer.read(0, 4)
    buffer.write(2, rows(50, 2), rows(50, 2))
    mx.eval(buffer.keys)
    assert numbers(before) == [0, 1, 2, 3]


def test_committing_keeps_the_first_rows_over_several_forwards() -> None:
    cache = RowCache([None, 8])
    for count in (3, 1, 1):
        for layer in cache.layers:
            layer.write(cache.end, rows(cache.end, count), rows(cache.end, count))
        cache.extend(count)
    assert (cache.num_committed, cache.num_uncommitted) == (0, 5)
    cache.commit(4)
    assert (cache.num_committed, cache.num_uncommitted, cache.end) == (4, 0, 4)
    cache.extend(2)
    cache.rollback()
    assert cache.end == 4


@pytest.mark.parametrize("num_rows", [-1, 3])
def test_committing_rows_that_are_not_there_is_an_error(num_rows: int) -> None:
    cache = RowCache([None])
    cache.extend(2)
    with pytest.raises(CacheStateError, match="2 uncommitted"):
        cache.commit(num_rows)
