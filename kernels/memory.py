"""Where weights lie: side by side, in huge pages, each at a whole cache line. Knows tiled weights; knows no layer."""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from mtplx.kernels.linear import TiledWeights
from mtplx.kernels.native_module import native


def settle(weights: Sequence[TiledWeights]) -> list[TiledWeights]:
    """The same weights, all in one piece of memory that is quick to read through."""
    words = _side_by_side([each.words for each in weights])
    numbers = iter(_side_by_side([part for each in weights for part in (each.scales, each.biases)]))
    return [
        replace(each, words=place, scales=next(numbers), biases=next(numbers))
        for each, place in zip(weights, words, strict=True)
    ]


def _side_by_side(arrays: Sequence[mx.array]) -> list[mx.array]:
    """The arrays, of one type and of whole cache lines each, as parts of one."""
    joined, start = native.join_in_huge_pages(list(arrays))
    parts = []
    for array in arrays:
        parts.append(joined[start : start + array.size].reshape(array.shape))
        start += array.size
    mx.eval(parts)
    return parts
