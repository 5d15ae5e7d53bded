"""Drafting with a model: a smaller one, or a part of the target. Knows how to keep its cache beside the sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mtplx.engine.cache import SequenceCache
from mtplx.engine.drafters.growing import GrowingDraft, Growth
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import Draft, Logits

_CATCH_UP_ROWS = 64


@dataclass
class _Place:
    """How far the drafter is in a sequence: its rows, and what its model gave after the last committed one."""

    cache: SequenceCache
    logits: Logits | None = None  # [V]


class ModelDrafter:
    """Draws each token from the model's distribution after the request's own processors.

    One forward a draft position serves all sequences. A sequence that is far ahead of the drafter, as after a long
    prompt, is caught up with a chunk a round, without a draft meanwhile, so that nobody waits for it. One that is
    longer than the model's `context_length` gets no draft.
    """

    def __init__(self, name: str, model: Target, context_length: int | None = None) -> None:
        self.name = name
        self._model = model
        self._context_length = context_length
        self._places: WeakKeyDictionary[DecodedSequence, _Place] = WeakKeyDictionary()
        self._growth = Growth(name)

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        begun = [self._begin(sequence, depth) for sequence, depth in zip(sequences, depths, strict=True)]
        self._catch_up([(draft, place) for draft, place in begun if not draft.is_done])
        growing = [(draft, place) for draft, place in begun if not draft.is_done]
        latest = [place.logits for _, place in growing]
        while growing:
            for (draft, _), logits in zip(growing, latest, strict=True):
                assert logits is not None
                self._growth.add(draft, logits)
            growing = [(draft, place) for draft, place in growing if not draft.is_done]
            if growing:
                rows = [Rows(place.cache, draft.tokens[-1:], 1) for draft, place in growing]
                latest = [logits[0] for logits in self._model.forward(rows)]
        self._places.update({draft.sequence: place for draft, place in begun})
        return [draft.draft for draft, _ in begun]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            cache = self._places[outcome.sequence].cache
            cache.commit(min(outcome.num_accepted, cache.num_uncommitted))  # the last draft token has no row

    def _begin(self, sequence: DecodedSequence, depth: int) -> tuple[GrowingDraft, _Place]:
        """The draft of no tokens, where the drafter left off."""
        # Taken out while in use: a cache that a failure leaves half written is not met again.
        place = self._places.pop(sequence, None) or _Place(self._model.new_cache())
        place.cache.rollback()
        if self._context_length is not None:  # the last draft token has no row
            depth = max(0, min(depth, self._context_length - len(sequence.tokens) + 1))
        return GrowingDraft(sequence, depth), place

    def _catch_up(self, drafts: Sequence[tuple[GrowingDraft, _Place]]) -> None:
        """Forward what was emitted since; where that is too much for a round, a part of it and there is no draft."""
        batch: list[tuple[_Place, Rows]] = []
        for draft, place in drafts:
            behind = draft.sequence.tokens[place.cache.num_committed :]
            if len(behind) > _CATCH_UP_ROWS:
                draft.depth = 0
                batch.append((place, Rows(place.cache, behind[:_CATCH_UP_ROWS], 0)))
            elif behind:  # nothing is when a draft is asked for once more
                batch.append((place, Rows(place.cache, behind, 1)))
        if batch:
            given = self._model.forward([rows for _, rows in batch])
            for (place, rows), logits in zip(batch, given, strict=True):
                rows.cache.commit(len(rows.tokens))
                place.logits = logits[0] if rows.num_logits else None
