"""Drafting what a request's grammar leaves no choice about. Knows grammars only by `Grammar.forced`."""

from collections.abc import Sequence

from mtplx.engine.drafters.base import MAX_CONFIDENCE
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import FORCED, Draft


class ForcedDrafter:
    """Drafts are one-hot and cost nothing. They survive unless the model spells the forced text in other tokens.

    Confidence is the number of forced tokens.
    """

    name = FORCED

    def confidence(self, sequence: DecodedSequence) -> int:
        return min(len(_forced(sequence)), MAX_CONFIDENCE)

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        return [Draft(_forced(sequence)[:depth]) for sequence, depth in zip(sequences, depths, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        pass


def _forced(sequence: DecodedSequence) -> tuple[int, ...]:
    grammar = sequence.history.grammar
    return () if grammar is None else grammar.forced()
