"""Attention of a ragged batch, the rows of many sequences in one call: a front, and the reference in plain MLX.

Knows buffers of keys and values by position. Knows no cache that owns them and no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mtplx.kernels.native_module import native, why_unavailable


@dataclass(frozen=True)
class AttentionSegment:
    """The rows of one sequence: `start` to `stop` of the batch, at `position` and after in the sequence.

    Row 0 of the sequence's buffers is at position `first`.
    """

    start: int
    stop: int
    position: int
    first: int = 0

    @property
    def end(self) -> int:
        """The position after the last row's."""
        return self.position + self.stop - self.start


@dataclass(frozen=True)
class Attended:
    """What attention gives: a row's output, and the buffers with what was appended."""

    output: mx.array  # [T, H, D'] or [T, H, 1, D']
    keys: list[mx.array]  # of each segment [1, KV heads, capacity, D]
    values: list[mx.array]  # of each segment [1, KV heads, capacity, D']


def ragged_attention(
    queries: mx.array,
    keys: Sequence[mx.array],
    values: Sequence[mx.array],
    segments: Sequence[AttentionSegment],
    *,
    scale: float,
    new_keys: mx.array | None = None,
    new_values: mx.array | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: mx.array | None = None,
) -> Attended:
    """Attention of each row over its own sequence: a row at position p sees the keys max(0, p - window + 1) … p.

    Args:
        queries: [T, H, D] or [T, H, 1, D], for the segments' rows one after the other.
        keys: for each segment [1, KV heads, capacity, D], float32 or float16; `values` [1, KV heads, capacity, D'] too.
            They must reach from the first key that a row sees to the last row.
        scale: factor of the queries.
        new_keys: [T, KV heads, D] or [T, KV heads, 1, D], stored at their rows' positions first; with `new_values`.
            A buffer that nobody else holds once the result is computed is written in place, any other is copied.
        softcap: makes a score softcap · tanh(score / softcap).
        sinks: [H], a score for each head that takes its part of the softmax and has no value (gpt-oss).

    Natively, the bits of a row depend on its position and the window, never on other rows or where its buffer begins.
    Raises ValueError if shapes, types or positions do not fit.
    """
    if why_unavailable() is not None:
        return reference_ragged_attention(
            queries,
            keys,
            values,
            segments,
            scale=scale,
            new_keys=new_keys,
            new_values=new_values,
            window=window,
            softcap=softcap,
            sinks=sinks,
        )
    output, *buffers = native.ragged_attention(
        queries.astype(mx.float32),
        list(keys),
        list(values),
        [(segment.first, segment.position, segment.start, segment.stop) for segment in segments],
        None if new_keys is None else new_keys.astype(mx.float32),
        None if new_values is None else new_values.astype(mx.float32),
        scale=scale,
        window=window or 0,
        softcap=softcap or 0.0,
        sinks=None if sinks is None else sinks.astype(mx.float32),
    )
    if not buffers:
        return Attended(output, list(keys), list(values))
    return Attended(output, buffers[::2], buffers[1::2])


def reference_ragged_attention(
    queries: mx.array,
    keys: Sequence[mx.array],
    values: Sequence[mx.array],
    segments: Sequence[AttentionSegment],
    *,
    scale: float,
    new_keys: mx.array | None = None,
    new_values: mx.array | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: mx.array | None = None,
) -> Attended:
    """The same sequence by sequence, with a mask: this defines the result."""
    if new_keys is not None and new_values is not None:
        keys = [_appended(*pair, new_keys) for pair in zip(keys, segments, strict=True)]
        values = [_appended(*pair, new_values) for pair in zip(values, segments, strict=True)]
    outputs = []
    for buffer_keys, buffer_values, segment in zip(keys, values, segments, strict=True):
        rows = queries[segment.start : segment.stop]
        seen = slice(0, segment.end - segment.first)
        outputs.append(
            _attention(
                rows.reshape(rows.shape[0], rows.shape[1], -1).swapaxes(0, 1)[None],  # [1, H, n, D]
                buffer_keys[:, :, seen].astype(queries.dtype),
                buffer_values[:, :, seen].astype(queries.dtype),
                _mask(segment, window),
                scale,
                softcap,
                sinks,
            )
        )
    output = mx.concatenate(outputs, axis=2)[0].swapaxes(0, 1)  # [T, H, D']
    return Attended(output.reshape(*queries.shape[:-1], -1), list(keys), list(values))


def _attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: mx.array,
    scale: float,
    softcap: float | None,
    sinks: mx.array | None,
) -> mx.array:
    """[1, H, n, D] over [1, KV heads, S, D] with a mask [n, S]: [1, H, n, D']."""
    if softcap is None:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    group = queries.shape[1] // keys.shape[1]
    scores = (queries * scale) @ mx.repeat(keys, group, axis=1).swapaxes(-1, -2)  # [1, H, n, S]
    scores = mx.where(mask, softcap * mx.tanh(scores / softcap), -mx.inf)
    if sinks is None:
        return mx.softmax(scores, axis=-1) @ mx.repeat(values, group, axis=1)
    sink = mx.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
    weights = mx.softmax(mx.concatenate([sink, scores], axis=-1), axis=-1)
    return weights[..., 1:] @ mx.repeat(values, group, axis=1)


def _mask(segment: AttentionSegment, window: int | None) -> mx.array:
    """Which keys from `first` on each row sees: [n, S]."""
    rows = mx.arange(segment.position, segment.end)[:, None]
    keys = mx.arange(segment.first, segment.end)[None]
    seen = keys <= rows
    return seen if window is None else seen & (keys > rows - window)


def _appended(buffer: mx.array, segment: AttentionSegment, new: mx.array) -> mx.array:
    """The buffer with the segment's rows of `new` [T, KV heads, D] at their positions."""
    rows = new[segment.start : segment.stop]
    rows = rows.reshape(rows.shape[0], rows.shape[1], -1).swapaxes(0, 1)[None]
    start = mx.array([segment.position - segment.first])
    return mx.slice_update(buffer, rows.astype(buffer.dtype), start, axes=[2])
