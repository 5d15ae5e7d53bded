"""Drafting with a model: a smaller one, or a part of the target. Knows how to keep its cache beside the sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mtplx.engine.cache import SequenceCache
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.randomness import Purpose
from mtplx.engine.sampling import adjust, check_finite, distribution, draw, most_likely
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import Distribution, Draft, Logits

_CATCH_UP_ROWS = 64


@dataclass
class _Place:
    """How far the drafter is in a sequence: its rows, and what its model gave after the last committed one."""

    cache: SequenceCache
    logits: Logits | None = None  # [V]


class ModelDrafter:
    """Draws each token from the model's distribution after the request's own processors.

    A sequence that is far ahead of the drafter, as after a long prompt, is caught up with a chunk a round, without a
    draft meanwhile, so that nobody waits for it.
    """

    def __init__(self, name: str, model: Target) -> None:
        self.name = name
        self._model = model
        self._places: WeakKeyDictionary[DecodedSequence, _Place] = WeakKeyDictionary()

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        return [self._draft(sequence, depth) for sequence, depth in zip(sequences, depths, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            cache = self._places[outcome.sequence].cache
            cache.commit(min(outcome.num_accepted, cache.num_uncommitted))  # the last draft token has no row

    def _draft(self, sequence: DecodedSequence, depth: int) -> Draft:
        # Taken out while in use: a cache that a failure leaves half written is not met again.
        place = self._places.pop(sequence, None) or _Place(self._model.new_cache())
        cache = place.cache
        cache.rollback()
        behind = sequence.tokens[cache.num_committed :]
        if len(behind) > _CATCH_UP_ROWS:
            self._advance(cache, behind[:_CATCH_UP_ROWS], num_logits=0)
            cache.commit(_CATCH_UP_ROWS)
            draft = Draft()
        else:
            if behind or place.logits is None:  # nothing is behind when a draft is asked for once more
                place.logits = self._advance(cache, behind, num_logits=1)[0]
                cache.commit(len(behind))
            draft = self._draw(sequence, cache, place.logits, depth)
        self._places[sequence] = place
        return draft

    def _draw(self, sequence: DecodedSequence, cache: SequenceCache, logits: Logits, depth: int) -> Draft:
        """`depth` tokens, the first from `logits` [V]. Their rows, but the last, stay uncommitted in the cache.

        Raises NonFiniteLogitsError when the model gives logits that no token can be drawn from.
        """
        params, history = sequence.request.sampling, sequence.history.copy()
        start = sequence.num_output
        tokens: list[int] = []
        distributions: list[Distribution] = []
        while True:
            check_finite(logits, start + len(tokens))
            scores = adjust(logits, params, history)
            if params.greedy:
                tokens.append(most_likely(scores))
            else:
                distributions.append(distribution(scores, params))
                uniform = sequence.key.uniform(start + len(tokens), Purpose.DRAFT, start)
                tokens.append(draw(distributions[-1], uniform))
            if len(tokens) == depth:
                return Draft(tuple(tokens), None if params.greedy else distributions)
            history.push(tokens[-1])
            logits = self._advance(cache, tokens[-1:], num_logits=1)[0]

    def _advance(self, cache: SequenceCache, tokens: Sequence[int], num_logits: int) -> Logits:
        return self._model.forward([Rows(cache, tokens, num_logits)])[0]
