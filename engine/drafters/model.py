"""Drafting with a model: a smaller one, or a part of the target. Knows how to keep its cache beside the sequences."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from mtplx.engine.cache import SequenceCache
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.randomness import Purpose
from mtplx.engine.sampling import (
    Scores,
    TokenHistory,
    adjust,
    check_finite,
    distribution,
    draw,
    draw_coupled,
    most_likely,
)
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import Distribution, Draft, Logits

logger = logging.getLogger(__name__)

_CATCH_UP_ROWS = 64


@dataclass
class _Place:
    """How far the drafter is in a sequence: its rows, and what its model gave after the last committed one."""

    cache: SequenceCache
    logits: Logits | None = None  # [V]


@dataclass
class _Growing:
    """A draft in the making. `depth` 0 asks for none."""

    sequence: DecodedSequence
    place: _Place
    depth: int
    history: TokenHistory
    logits: Logits | None = None  # [V], for the next token
    tokens: list[int] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    failed: bool = False

    @property
    def draft(self) -> Draft:
        if self.failed:
            return Draft(failed=True)
        return Draft(tuple(self.tokens), self.distributions or None)


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
        self._has_failed = False

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        drafts = [self._begin(sequence, depth) for sequence, depth in zip(sequences, depths, strict=True)]
        self._catch_up([draft for draft in drafts if draft.depth])
        growing = [draft for draft in drafts if draft.depth]
        while growing := [draft for draft in growing if self._grow(draft)]:
            rows = [Rows(draft.place.cache, draft.tokens[-1:], 1) for draft in growing]
            for draft, logits in zip(growing, self._model.forward(rows), strict=True):
                draft.logits = logits[0]
        self._places.update({draft.sequence: draft.place for draft in drafts})
        return [draft.draft for draft in drafts]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            cache = self._places[outcome.sequence].cache
            cache.commit(min(outcome.num_accepted, cache.num_uncommitted))  # the last draft token has no row

    def _begin(self, sequence: DecodedSequence, depth: int) -> _Growing:
        """The draft of no tokens, where the drafter left off."""
        # Taken out while in use: a cache that a failure leaves half written is not met again.
        place = self._places.pop(sequence, None) or _Place(self._model.new_cache())
        place.cache.rollback()
        if self._context_length is not None:  # the last draft token has no row
            depth = max(0, min(depth, self._context_length - len(sequence.tokens) + 1))
        return _Growing(sequence, place, depth, sequence.history.ahead())

    def _catch_up(self, drafts: Sequence[_Growing]) -> None:
        """Forward what was emitted since; where that is too much for a round, a part of it and there is no draft."""
        batch: list[tuple[_Growing, Rows]] = []
        for draft in drafts:
            cache = draft.place.cache
            behind = draft.sequence.tokens[cache.num_committed :]
            if len(behind) > _CATCH_UP_ROWS:
                draft.depth = 0
                batch.append((draft, Rows(cache, behind[:_CATCH_UP_ROWS], 0)))
            elif behind:  # nothing is when a draft is asked for once more
                batch.append((draft, Rows(cache, behind, 1)))
        if batch:
            given = self._model.forward([rows for _, rows in batch])
            for (draft, rows), logits in zip(batch, given, strict=True):
                rows.cache.commit(len(rows.tokens))
                draft.place.logits = logits[0] if rows.num_logits else None
        for draft in drafts:
            draft.logits = draft.place.logits

    def _grow(self, draft: _Growing) -> bool:
        """Add a token; whether the draft is to grow on. A failure is of this draft alone."""
        try:
            self._add_token(draft)
        except Exception:
            if not self._has_failed:
                logger.exception("the drafter %r failed on a sequence; its round goes on without", self.name)
            self._has_failed = draft.failed = True
        return not draft.failed and len(draft.tokens) < draft.depth

    def _add_token(self, draft: _Growing) -> None:
        """Raises NonFiniteLogitsError when the model gives logits that no token can be drawn from."""
        assert draft.logits is not None
        if draft.tokens:
            draft.history.push(draft.tokens[-1])
        position = draft.sequence.num_output + len(draft.tokens)
        check_finite(draft.logits, position)
        scores = adjust(draft.logits, draft.sequence.request.sampling, draft.history)
        token, probabilities = draw_draft_token(draft.sequence, scores, position)
        draft.tokens.append(token)
        if probabilities is not None:
            draft.distributions.append(probabilities)


def draw_draft_token(sequence: DecodedSequence, scores: Scores, position: int) -> tuple[int, Distribution | None]:
    """The token to draft at `position` of the output, and the distribution it was drawn from; None is one-hot."""
    params = sequence.request.sampling
    if params.greedy:
        return most_likely(scores), None
    probabilities = distribution(scores, params)
    if sequence.request.acceptance == "coupled":
        return draw_coupled(probabilities, partial(sequence.key.gumbel, position)), None
    return draw(probabilities, sequence.key.uniform(position, Purpose.DRAFT, sequence.num_output)), probabilities
