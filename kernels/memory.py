"""Where weights lie: in huge pages, since each pass reads them all. Knows tiled weights; knows no layer."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import mlx.core as mx

from mtplx.kernels.dense import DenseTiles
from mtplx.kernels.linear import TiledWeights
from mtplx.kernels.native_module import native

Tiles = TypeVar("Tiles", bound=TiledWeights | DenseTiles)

_MAX_SIZE = 1 << 30  # numbers in one piece: an MLX array's axis counts in 32 bits


def settle(weights: Sequence[Tiles]) -> list[Tiles]:
    """The same weights, all of a type in one piece of memory that is quick to read through, in this order."""
    by_type: dict[mx.Dtype, list[tuple[int, str]]] = {}
    for index, each in enumerate(weights):
        for name, array in _arrays(each).items():
            by_type.setdefault(array.dtype, []).append((index, name))
    places: list[dict[str, Any]] = [{} for _ in weights]
    for names in by_type.values():
        for run in _runs([(index, name, getattr(weights[index], name)) for index, name in names]):
            settled = _side_by_side([array for _, _, array in run])
            for (index, name, _), place in zip(run, settled, strict=True):
                places[index][name] = place
    return [replace(each, **place) for each, place in zip(weights, places, strict=True)]


def _side_by_side(arrays: Sequence[mx.array]) -> list[mx.array]:
    """The arrays, of one type and of whole cache lines each, as parts of one."""
    joined, start = native.join_in_huge_pages(list(arrays))
    parts = []
    for array in arrays:
        parts.append(joined[start : start + array.size].reshape(array.shape))
        start += array.size
    mx.eval(parts)
    return parts


def _arrays(weights: TiledWeights | DenseTiles) -> dict[str, mx.array]:
    values = {field.name: getattr(weights, field.name) for field in fields(weights)}
    return {name: value for name, value in values.items() if isinstance(value, mx.array)}


def _runs(items: Sequence[tuple[int, str, mx.array]]) -> Iterator[list[tuple[int, str, mx.array]]]:
    """The items in runs of not too many numbers."""
    run: list[tuple[int, str, mx.array]] = []
    size = 0
    for item in items:
        if run and size + item[2].size > _MAX_SIZE:
            yield run
            run, size = [], 0
        run.append(item)
        size += item[2].size
    yield run
