"""Decoding one request step by step, as several tests need it."""

from collections.abc import Sequence

import numpy as np

from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Emission, Speculator
from mtplx.engine.types import Draft, Request


class MistakenOracle:
    """Drafts the true continuation of one text, each token replaced by a wrong one with a given chance."""

    name = "oracle"

    def __init__(self, truth: Sequence[int], chance: float, vocab_size: int, seed: int = 0) -> None:
        self._truth = list(truth)
        self._chance = chance
        self._vocab_size = vocab_size
        self._random = np.random.default_rng(seed)
        self.outcomes: list[Outcome] = []

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        return [self._draft(sequence, depth) for sequence, depth in zip(sequences, depths, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes

    def _draft(self, sequence: DecodedSequence, depth: int) -> Draft:
        tokens = self._truth[sequence.num_output : sequence.num_output + depth]
        wrong = self._random.random(len(tokens)) < self._chance
        return Draft(tuple((token + bool(miss)) % self._vocab_size for token, miss in zip(tokens, wrong, strict=True)))


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
    drafts = [speculator.draft(sequence) for sequence in sequences]
    verdicts = speculator.verify(sequences, drafts)
    return [speculator.commit(*each) for each in zip(sequences, drafts, verdicts, strict=True)]


def decode(speculator: Speculator, request: Request, prefill_chunk: int = 16) -> tuple[list[int], DecodedSequence]:
    """The output tokens, and the sequence at its end."""
    sequence = begin(speculator, request, prefill_chunk)
    while sequence.reason is None:
        step(speculator, sequence)
    return sequence.tokens[len(request.prompt) :], sequence


def decode_together(speculator: Speculator, requests: Sequence[Request]) -> list[list[int]]:
    """The output tokens of each request; every round is one forward for all that have not ended."""
    sequences = [begin(speculator, request) for request in requests]
    while running := [sequence for sequence in sequences if sequence.reason is None]:
        step_together(speculator, running)
    return [sequence.tokens[len(sequence.request.prompt) :] for sequence in sequences]
