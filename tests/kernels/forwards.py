"""A text run through a target in parts, for tests of what its rows are."""

import mlx.core as mx

from mtplx.engine.models.row_target import RowTarget
from mtplx.engine.models.target import Rows


def run(target: RowTarget, *parts: list[int]) -> mx.array:
    """Logits [T, V] of all rows, committed part by part."""
    cache = target.new_cache()
    rows = []
    for part in parts:
        rows.append(mx.array(target.forward([Rows(cache, part, len(part))])[0]))
        cache.commit(len(part))
    return mx.concatenate(rows)
