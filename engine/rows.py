"""Every token is a row: a ragged batch of sequences as one flat batch that mlx-lm's models run unchanged.

Tokens go in as [T, 1]. To each layer we look like one of mlx-lm's caches: our `offset` is the position of every row,
our mask is a note of the window, and attention, which mlx-lm's models call by one name, comes back to us. It runs in
one native call for all sequences where native kernels are active, else sequence by sequence. Knows mlx-lm's conventions
for caches; knows no particular model.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.cache import KeyValueBuffer, RowCache, RowCount
from mtplx.kernels.attention import AttentionSegment, ragged_attention

_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class RowMask:
    """Stands where mlx-lm passes a mask: causal, within a window if there is one.

    Not an array: a model that computes with its mask fails on it, and is found not to run by rows.
    """

    window: int | None


Cache = TypeVar("Cache", bound=RowCount)


@dataclass(frozen=True)
class Segment(Generic[Cache]):
    """The rows of one sequence in the batch: `start` to `stop` of T, at `position` and after in the sequence."""

    cache: Cache
    start: int
    stop: int
    position: int

    @property
    def end(self) -> int:
        """The position after the last row's."""
        return self.position + self.stop - self.start


class RowBatch(Generic[Cache]):
    """The rows of several sequences, flattened."""

    def __init__(self, entries: Sequence[tuple[Cache, Sequence[int]]]) -> None:
        self.segments: list[Segment[Cache]] = []
        start = 0
        for cache, tokens in entries:
            self.segments.append(Segment(cache, start, start + len(tokens), cache.end))
            start += len(tokens)
        self.tokens = [token for _, tokens in entries for token in tokens]

    @cached_property
    def positions(self) -> mx.array:
        """Of every row in its sequence [T]."""
        return mx.array(
            [segment.position + i for segment in self.segments for i in range(segment.stop - segment.start)]
        )


def row_views(batch: RowBatch[RowCache], num_layers: int, *, native: bool = False) -> list["RowView"]:
    """What a model takes for its list of caches; with native attention, if so asked, for float32 rows."""
    return [RowView(batch, layer, native) for layer in range(num_layers)]


class LayerView:
    """What attends in place of a layer, in the guise of its mlx-lm cache."""

    def attend(
        self, queries: mx.array, mask: RowMask | None, *, scale: float, sinks: mx.array | None = None
    ) -> mx.array:
        """Attention of these queries over keys and values that `update_and_fetch` was given."""
        raise NotImplementedError


class RowView(LayerView):
    """One layer of the batch, in the guise of an mlx-lm cache."""

    def __init__(self, batch: RowBatch[RowCache], layer: int, native: bool) -> None:
        self._batch = batch
        self._layer = layer
        self._native = native
        self._unwritten: tuple[mx.array, mx.array] | None = None
        self.num_writes = 0
        self.num_reads = 0
        self.mask_fits = True

    @property
    def offset(self) -> mx.array:
        return self._batch.positions

    def make_mask(self, num_rows: int, return_array: bool = False, window_size: int | None = None) -> RowMask:
        return RowMask(window_size or self._window)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Store rows [T, H, 1, D] in their sequences' buffers. Attention reads them there."""
        self.num_writes += 1
        if self._native and keys.dtype == values.dtype == mx.float32:
            self._unwritten = keys, values  # native attention stores them, in the same call
            return keys, values
        for segment in self._batch.segments:
            rows = slice(segment.start, segment.stop)
            self._buffer(segment).write(segment.position, _as_sequence(keys[rows]), _as_sequence(values[rows]))
        return keys, values

    def attend(
        self, queries: mx.array, mask: RowMask | None, *, scale: float, sinks: mx.array | None = None
    ) -> mx.array:
        """Attention of the rows [T, H, 1, D], each over its own sequence."""
        self.num_reads += 1
        # mlx-lm's rotating caches mask a chunk by the one window and a single row by the other.
        self.mask_fits = mask is None or self._window in (None, mask.window)
        window = _narrower(self._window, None if mask is None else mask.window)
        if self._unwritten is not None:
            return self._attend_natively(queries, *self._unwritten, window, scale, sinks)
        outputs = []
        for segment in self._batch.segments:
            rows = _as_sequence(queries[segment.start : segment.stop])
            outputs.append(_attend(self._buffer(segment), rows, segment, window, scale, sinks))
        return _as_rows(outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2))

    def _attend_natively(
        self,
        queries: mx.array,
        new_keys: mx.array,
        new_values: mx.array,
        window: int | None,
        scale: float,
        sinks: mx.array | None,
    ) -> mx.array:
        """The same for all sequences in one call, which stores the new rows [T, H, 1, D] too."""
        self._unwritten = None
        buffers = [self._buffer(segment) for segment in self._batch.segments]
        like = new_keys[:1], new_values[:1]
        taken = [buffer.take(each.end, *like) for buffer, each in zip(buffers, self._batch.segments, strict=True)]
        attended = ragged_attention(
            queries,
            [keys for keys, _ in taken],
            [values for _, values in taken],
            [
                AttentionSegment(segment.start, segment.stop, segment.position, buffer.first)
                for segment, buffer in zip(self._batch.segments, buffers, strict=True)
            ],
            scale=scale,
            new_keys=new_keys,
            new_values=new_values,
            window=window,
            sinks=sinks,
        )
        for buffer, keys, values in zip(buffers, attended.keys, attended.values, strict=True):
            buffer.keys, buffer.values = keys, values
        return attended.output

    @property
    def _window(self) -> int | None:
        return self._buffer(self._batch.segments[0]).window

    def _buffer(self, segment: Segment[RowCache]) -> KeyValueBuffer:
        return segment.cache.layers[self._layer]


def _attend(
    buffer: KeyValueBuffer,
    queries: mx.array,
    segment: Segment[RowCache],
    window: int | None,
    scale: float,
    sinks: mx.array | None,
) -> mx.array:
    """Attention of one sequence's rows, queries [1, H, n, D]."""
    start = 0 if window is None else max(0, segment.position - window + 1)
    keys, values = buffer.read(start, segment.end)
    mask = _mask(segment.position, segment.stop - segment.start, start, window)
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)


def _mask(position: int, num_rows: int, start: int, window: int | None) -> mx.array | str | None:
    """The mask over keys from `start` on, for rows from `position` on."""
    end = position + num_rows
    if num_rows == 1:
        return None
    if window is None or end - start <= window:
        return "causal"
    rows = mx.arange(position, end)[:, None]
    keys = mx.arange(start, end)[None]
    return (keys <= rows) & (keys > rows - window)


def _narrower(a: int | None, b: int | None) -> int | None:
    return min((window for window in (a, b) if window is not None), default=None)


def _as_sequence(rows: mx.array) -> mx.array:
    """[n, H, 1, D] to [1, H, n, D]."""
    return rows.transpose(2, 1, 0, 3)


_as_rows = _as_sequence  # the same exchange of axes takes [1, H, n, D] back to [n, H, 1, D]


def install_row_attention(model: nn.Module) -> None:
    """Make the attention that this model's modules call recognise a `LayerView`; other callers notice nothing."""
    for name in {type(module).__module__ for module in model.modules()}:
        module = sys.modules[name]
        original = getattr(module, _ATTENTION, None)
        if original is not None and not hasattr(original, "__wrapped__"):
            setattr(module, _ATTENTION, _recognise_rows(original))


def _recognise_rows(original: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attention(
        queries: mx.array, keys: mx.array, values: mx.array, cache: Any, scale: float, mask: Any, sinks: Any = None
    ) -> mx.array:
        if isinstance(cache, LayerView):
            return cache.attend(queries, mask, scale=scale, sinks=sinks)
        return original(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)

    attention.__wrapped__ = original  # type: ignore[attr-defined]
    return attention
