"""Running a draft head: one forward of its block for many sequences, each with a cache of its own.

By rows, with all of it as one native call where that is possible, or one sequence at a time: by the same check as a
model, against the block's own forward. Knows no drafts.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import mlx.core as mx
import numpy as np

from mtplx.engine.cache import RowCache, SequenceCache
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.host_memory import in_host_memory
from mtplx.engine.models.mtp import DraftHead
from mtplx.engine.models.parts import EmbeddingOf
from mtplx.engine.models.sequential_cache import SequentialCache
from mtplx.engine.rows import RowBatch, row_views
from mtplx.engine.stacked_cache import StackedCache
from mtplx.engine.types import HostStates, Logits
from mtplx.kernels.accelerate import is_accelerated
from mtplx.kernels.decoder import Decoded, DecoderRows, NativeEntrance, NativeLayers, OtherShapeError
from mtplx.kernels.inputs import float_inputs
from mtplx.kernels.layers import NativeEmbedding, NativeLinear, NativeRMSNorm

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-3  # of the largest value, for rows that kernels compute in another order


@dataclass(frozen=True)
class Pairs:
    """What one sequence puts into a forward: the hidden states [n, D] of some rows, and the token after each."""

    cache: SequenceCache
    hidden: HostStates
    tokens: Sequence[int]


@dataclass(frozen=True)
class Foreseen:
    """What comes after the last pair of each sequence: the hidden states [B, D], and logits [B, N]."""

    hidden: HostStates
    logits: Logits


class RunningHead(Protocol):
    """A head at work. Used from one thread only."""

    def new_cache(self) -> SequenceCache: ...

    def forward(self, batch: Sequence[Pairs]) -> Foreseen:
        """Appends the pairs to the caches, uncommitted. The batch names no cache twice."""
        ...


def running_head(head: DraftHead) -> RunningHead:
    """The quickest way to run the head that gives what its block gives. Raises ModelLoadError if none does."""
    ways: list[Callable[[DraftHead], RunningHead]] = [SequentialHead]
    ways = [RowHead, *ways] if not is_accelerated(head.block) else [FusedHead, NativeRowHead, RowHead, *ways]
    reasons = []
    for way in ways:
        try:
            running = way(head)
            with float_inputs():
                _check(running, head)
        except OtherShapeError as reason:
            logger.info("the draft head does not run as one native call: %s", reason)
        except Exception as error:  # layers fail in their own ways when a row is not what they expect
            reasons.append(f"{way.__name__}: {error}")
        else:
            return running
    raise ModelLoadError(f"the draft head does not run ({'; '.join(reasons)}); name another one")


class RowHead:
    """Runs the block on flattened rows of all sequences."""

    _is_native = False

    def __init__(self, head: DraftHead) -> None:
        self._head = head

    def new_cache(self) -> RowCache:
        return RowCache([self._head.block.window])

    def forward(self, batch: Sequence[Pairs]) -> Foreseen:
        caches = [cast(RowCache, pairs.cache) for pairs in batch]
        rows = RowBatch([(cache, pairs.tokens) for cache, pairs in zip(caches, batch, strict=True)])
        [view] = row_views(rows, 1, native=self._is_native)
        embedded = self._head.embed(mx.array(rows.tokens)[:, None])
        entering = _entering(_joined([pairs.hidden for pairs in batch]), embedded)[:, None]
        leaving = self._head.block(entering, embedded, view)[:, 0]  # [T, D]
        ends = mx.array([segment.stop - 1 for segment in rows.segments])
        foreseen = _foreseen(self._head, leaving[ends], [cache.arrays for cache in caches])
        for cache, pairs in zip(caches, batch, strict=True):
            cache.extend(len(pairs.tokens))
        return foreseen


class NativeRowHead(RowHead):
    """The same with native attention."""

    _is_native = True


class FusedHead:
    """Runs the block's layer, its norm and, as far as they are native, what is before and after these as one call.

    Raises OtherShapeError for a layer of another shape.
    """

    def __init__(self, head: DraftHead) -> None:
        product = head.project if isinstance(head.project, NativeLinear | NativeEmbedding) else None
        self._head = head
        self._has_product = product is not None
        self._entrance = _native_entrance(head)
        self._layers = NativeLayers([head.block.layer], head.block.norm, entrance=self._entrance, head=product)

    def new_cache(self) -> StackedCache:
        return StackedCache(self._layers.row_like)

    def forward(self, batch: Sequence[Pairs]) -> Foreseen:
        caches = [cast(StackedCache, pairs.cache) for pairs in batch]
        rows = RowBatch([(cache, pairs.tokens) for cache, pairs in zip(caches, batch, strict=True)])
        ends = [segment.stop - 1 for segment in rows.segments]
        decoded = self._decode(rows, ends, _joined([pairs.hidden for pairs in batch]))
        for cache, pairs, buffer in zip(caches, batch, decoded.buffers, strict=True):
            cache.buffer = buffer
            cache.extend(len(pairs.tokens))
        if decoded.hidden is None:  # they stand for logits, for lack of a product
            return _foreseen(self._head, mx.array(decoded.logits), None)
        return Foreseen(decoded.hidden if len(ends) == len(rows.tokens) else decoded.hidden[ends], decoded.logits)

    def _decode(self, rows: RowBatch[StackedCache], ends: Sequence[int], states: HostStates) -> Decoded:
        """What the layer, its norm and, where it is native, the product make of all rows, with logits at the `ends`."""
        bounds = [DecoderRows(segment.position, segment.start, segment.stop) for segment in rows.segments]
        buffers = [segment.cache.take(segment.stop - segment.start) for segment in rows.segments]
        wants_hidden = self._has_product
        if self._entrance is not None:
            return self._layers.now(rows.tokens, bounds, ends, buffers, states=states, wants_hidden=wants_hidden)
        embedded = self._head.embed(mx.array(rows.tokens))
        entering = self._head.block.combine(_entering(states, embedded), embedded)
        return self._layers.lazily(entering, bounds, ends, buffers, wants_hidden=wants_hidden).evaluated()


def _native_entrance(head: DraftHead) -> NativeEntrance | None:
    """None if a part of it is not native."""
    block: Any = head.block
    embedding = head.embed.module if isinstance(head.embed, EmbeddingOf) else None
    norms = block.embedding_norm, block.hidden_norm
    if not isinstance(embedding, NativeEmbedding) or not isinstance(block.projection, NativeLinear):
        return None
    are_native = all(isinstance(norm, NativeRMSNorm) for norm in norms)
    return NativeEntrance(embedding, *norms, block.projection) if are_native else None


class SequentialHead:
    """Runs the block on one sequence after the other, with mlx-lm's own caches."""

    def __init__(self, head: DraftHead) -> None:
        self._head = head

    def new_cache(self) -> SequentialCache:
        return SequentialCache([self._head.block.make_cache()])

    def forward(self, batch: Sequence[Pairs]) -> Foreseen:
        foreseen = [self._forward(cast(SequentialCache, pairs.cache), pairs) for pairs in batch]
        return Foreseen(_joined([each.hidden for each in foreseen]), np.concatenate([each.logits for each in foreseen]))

    def _forward(self, cache: SequentialCache, pairs: Pairs) -> Foreseen:
        cache.prepare()
        embedded = self._head.embed(mx.array(list(pairs.tokens))[None])
        leaving = self._head.block(_entering(pairs.hidden, embedded)[None], embedded, cache.layers[0])[0]
        foreseen = _foreseen(self._head, leaving[-1:], cache.arrays)
        cache.extend(pairs.tokens)
        return foreseen


def _foreseen(head: DraftHead, hidden: mx.array, arrays: object) -> Foreseen:
    """By hidden states [B, D]; `arrays` are to be in memory as well."""
    logits = head.project(hidden)
    mx.eval(hidden, logits, arrays)
    return Foreseen(in_host_memory(hidden), in_host_memory(logits))


def _joined(states: Sequence[HostStates]) -> HostStates:
    return states[0] if len(states) == 1 else np.concatenate(states)


def _entering(states: HostStates, embedded: mx.array) -> mx.array:
    """States as the block takes them beside embedded tokens: of their type."""
    return mx.array(states).astype(embedded.dtype)


def _check(running: RunningHead, head: DraftHead) -> None:
    """Raises ValueError unless pairs of two sequences, fed in two steps, give what the block gives without a cache.

    They go past the window only if that is narrow; nothing beyond is looked at.
    """
    width = head.block.norm.weight.size
    window = head.block.window or 0
    lengths = (4, 6 + (window if window <= 64 else 0))
    texts = [[(3 + 5 * place) % 16 for place in range(length)] for length in lengths]
    states = [np.array(mx.random.normal((length, width), key=mx.random.key(length))) for length in lengths]
    caches = [running.new_cache() for _ in lengths]
    given = None
    for part in (slice(0, -2), slice(-2, None)):
        batch = [Pairs(c, s[part], text[part]) for c, s, text in zip(caches, states, texts, strict=True)]
        given = running.forward(batch)
        for pairs in batch:
            pairs.cache.commit(len(pairs.tokens))
    assert given is not None
    for index, (state, text) in enumerate(zip(states, texts, strict=True)):
        embedded = head.embed(mx.array(text)[None])
        hidden = head.block(_entering(state, embedded)[None], embedded)[0, -1:]
        expected = in_host_memory(head.project(hidden))[0]
        difference = float(np.abs(given.logits[index] - expected).max() / np.abs(expected).max())
        if not difference <= _tolerance(hidden):
            raise ValueError(f"its logits differ from the block's own, by {difference:.1e} of their size")


def _tolerance(states: mx.array) -> float:
    return 5e-2 if states.dtype in (mx.float16, mx.bfloat16) else _TOLERANCE
