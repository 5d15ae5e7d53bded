"""Caches filled by hand, for tests of what becomes of their rows."""

from collections.abc import Sequence

import mlx.core as mx

from mtplx.engine.cache import KeyValueBuffer, RowCache

ROW_BYTES = 2 * 2 * 4 * 4  # of a token in a layer: keys and values, two heads, four floats
FULL = (None, None)
WINDOWED = (None, 8)


def filled(tokens: Sequence[int], windows: Sequence[int | None] = FULL) -> RowCache:
    """A cache with a committed row for each token: keys are the token, values its place."""
    cache = RowCache(windows)
    append(cache, tokens)
    cache.commit(len(tokens))
    return cache


def append(cache: RowCache, tokens: Sequence[int]) -> None:
    """Rows of these tokens, uncommitted."""
    for layer in cache.layers:
        places = range(cache.end, cache.end + len(tokens))
        layer.write(cache.end, _rows(tokens), _rows(places))
    cache.extend(len(tokens))
    mx.eval(cache.arrays)


def contents(cache: RowCache) -> list[tuple[list[float], list[float]]]:
    """Of each layer the tokens and places of the rows that a later one can see."""
    return [_numbers(layer, cache.num_committed) for layer in cache.layers]


def expected(tokens: Sequence[int], windows: Sequence[int | None] = FULL) -> list[tuple[list[float], list[float]]]:
    """The same of a cache with just these tokens."""
    firsts = [0 if window is None else max(0, len(tokens) - window + 1) for window in windows]
    return [(list(tokens[first:]), list(range(first, len(tokens)))) for first in firsts]


def _rows(numbers: Sequence[int]) -> mx.array:
    column = mx.array(list(numbers), dtype=mx.float32)[None, None, :, None]
    return mx.broadcast_to(column, (1, 2, len(numbers), 4))


def _numbers(layer: KeyValueBuffer, end: int) -> tuple[list[float], list[float]]:
    if not end:
        return [], []
    keys, values = layer.read(layer.first_visible(end), end)
    assert bool((keys == keys[:, :1, :, :1]).all())
    return keys[0, 0, :, 0].tolist(), values[0, 1, :, 3].tolist()
