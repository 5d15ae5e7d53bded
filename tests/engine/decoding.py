"""Decoding requests step by step, as several tests need it, and telling whether two caches hold the same rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import mlx.core as mx
import numpy as np

from mtplx.engine.cache import RowCache, SequenceCache
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Emission, Speculator
from mtplx.engine.stacked_cache import StackedCache
from mtplx.engine.types import Acceptance, Draft, Request, TokenScore

Depth = int | Literal["auto"]
RULES: tuple[Acceptance, ...] = ("rejection", "block", "coupled")
MOST = 8  # the depth up to which "auto" may go


class MistakenOracle:
    """Drafts the true continuation of one text, each token replaced by a wrong one with a given chance."""

    name = "oracle"

    def __init__(self, truth: Sequence[int], chance: float, vocab_size: int, seed: int = 0) -> None:
        self._truth = list(truth)
        self._chance = chance
        self._vocab_size = vocab_size
        self._random = np.random.default_rng(seed)
        self.outcomes: list[Outcome] = []

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        return [self._draft(sequence, depth) for sequence, depth in zip(sequences, depths, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes

    def _draft(self, sequence: DecodedSequence, depth: int) -> Draft:
        tokens = self._truth[sequence.num_output : sequence.num_output + depth]
        wrong = self._random.random(len(tokens)) < self._chance
        return Draft(tuple((token + bool(miss)) % self._vocab_size for token, miss in zip(tokens, wrong, strict=True)))


def speculating(request: Request, drafter: str, depth: Depth, rule: Acceptance = "rejection") -> Request:
    """The request, decoded with drafts."""
    auto = depth == "auto"
    return replace(request, drafter=drafter, depth=MOST if auto else depth, auto_depth=auto, acceptance=rule)


def begin(speculator: Speculator, request: Request, prefill_chunk: int = 16) -> DecodedSequence:
    """The request, prefilled."""
    sequence = speculator.begin(request)
    while sequence.num_to_prefill:
        speculator.prefill(sequence, min(sequence.num_to_prefill, prefill_chunk))
    return sequence


def step(speculator: Speculator, sequence: DecodedSequence) -> Emission:
    """One round."""
    return step_together(speculator, [sequence])[0]


def step_together(speculator: Speculator, sequences: Sequence[DecodedSequence]) -> list[Emission]:
    """One round of each sequence, all verified by one forward."""
    drafts = speculator.draft(sequences)
    verdicts = speculator.verify(sequences, drafts)
    return [speculator.commit(*each) for each in zip(sequences, drafts, verdicts, strict=True)]


def decode(speculator: Speculator, request: Request, prefill_chunk: int = 16) -> tuple[list[int], DecodedSequence]:
    """The output tokens, and the sequence at its end."""
    sequence = begin(speculator, request, prefill_chunk)
    while sequence.reason is None:
        step(speculator, sequence)
    return sequence.tokens[len(request.prompt) :], sequence


def decode_scored(speculator: Speculator, request: Request) -> tuple[list[int], list[TokenScore]]:
    """The output tokens, and the score of each."""
    sequence, scores = begin(speculator, request), list[TokenScore]()
    while sequence.reason is None:
        scores += step(speculator, sequence).scores
    tokens = sequence.tokens[len(request.prompt) :]
    assert [score.token for score in scores] == tokens
    return tokens, scores


def decode_together(speculator: Speculator, requests: Sequence[Request]) -> list[list[int]]:
    """The output tokens of each request; every round is one forward for all that have not ended."""
    sequences = [begin(speculator, request) for request in requests]
    while running := [sequence for sequence in sequences if sequence.reason is None]:
        step_together(speculator, running)
    return [sequence.tokens[len(sequence.request.prompt) :] for sequence in sequences]


def in_step(
    speculator: Speculator, request: Request, plain: Speculator
) -> Iterator[tuple[DecodedSequence, DecodedSequence]]:
    """After every round of the request: its sequence, and one of as many tokens that `plain` decoded without drafts."""
    speculated = begin(speculator, request)
    never_drafted = begin(plain, replace(request, drafter="none", depth=0))
    while speculated.reason is None:
        step(speculator, speculated)
        while never_drafted.num_output < speculated.num_output:
            step(plain, never_drafted)
        yield speculated, never_drafted


def difference(target: Target, one: SequenceCache, other: SequenceCache) -> float:
    """How far two caches of one text are apart: by what comes next, in units of the largest logit; 0 is to the bit.

    Key-value rows are compared themselves: any two bits that differ there count as 1.
    """
    assert one.num_committed == other.num_committed
    assert one.num_uncommitted == other.num_uncommitted == 0
    if isinstance(one, StackedCache) and isinstance(other, StackedCache):
        end = one.num_committed
        [ours], [theirs] = one.read_rows(0, end), other.read_rows(0, end)
        return float(not mx.array_equal(ours, theirs))
    if isinstance(one, RowCache) and isinstance(other, RowCache):
        return float(not all(_same_rows(one, other)))
    a, b = (target.forward([Rows(cache, [9], 1)])[0] for cache in (one, other))
    one.rollback()
    other.rollback()
    return float(abs(a - b).max() / abs(b).max())


def _same_rows(one: RowCache, other: RowCache) -> Iterator[bool]:
    for ours, theirs in zip(one.layers, other.layers, strict=True):
        visible = ours.first_visible(one.num_committed)
        for a, b in zip(ours.read(visible, one.end), theirs.read(visible, other.end), strict=True):
            yield bool(mx.array_equal(a, b))
