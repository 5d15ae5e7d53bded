"""Drafting with a head on the target's hidden states, as DeepSeek-V3 (2412.19437) predicts several tokens.

The head sees the true hidden state of every committed row, and the token after it; from there it goes on with hidden
states of its own making. Knows how to keep its cache beside the sequences; knows no model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mtplx.engine.cache import SequenceCache
from mtplx.engine.drafters.calibration import Calibration
from mtplx.engine.drafters.growing import GrowingDraft, Growth
from mtplx.engine.hidden import HiddenPiece
from mtplx.engine.models.running_head import Pairs, RunningHead
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import HEAD, Draft, HostStates, Logits
from mtplx.engine.vocabulary_part import PartOfVocabulary


@dataclass
class _Place:
    """How far the head is in a sequence: its rows, the first of which stands for the text's row `start`, and what it
    foresees after the last committed one."""

    cache: SequenceCache
    start: int
    hidden: HostStates  # [1, D]
    logits: Logits  # [N]
    likeliest: Sequence[float] = ()  # of the tokens last drafted, as `GrowingDraft` has it

    @property
    def end(self) -> int:
        return self.start + self.cache.num_committed


class HeadDrafter:
    """Draws each token from the head's distribution after the request's own processors.

    One forward a draft position serves all sequences. What the target's cache holds of hidden states is taken in every
    round. A draft ends where the next token is not worth adding, by how often tokens drafted with such confidence
    survived so far.
    """

    name = HEAD

    def __init__(self, head: RunningHead, part: PartOfVocabulary | None = None) -> None:
        """`part` are the tokens that the head has logits of, if not all."""
        self._head = head
        self._part = part
        self._places: WeakKeyDictionary[DecodedSequence, _Place] = WeakKeyDictionary()
        self._growth = Growth(self.name)
        self._calibrations = {greedy: Calibration() for greedy in (True, False)}

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        places = self._catch_up(sequences)
        drafts = [
            GrowingDraft(sequence, depth if self._is_at_end(sequence, place) else 0)
            for sequence, place, depth in zip(sequences, places, depths, strict=True)
        ]
        growing = [(draft, place) for draft, place in zip(drafts, places, strict=True) if place and not draft.is_done]
        begun = list(growing)
        latest = [(place.hidden, place.logits) for _, place in growing]
        while growing:
            for (draft, _), (_, logits) in zip(growing, latest, strict=True):
                self._growth.add(draft, logits, self._part)
            left = [index for index, (draft, _) in enumerate(growing) if self._is_worth_more(draft)]
            growing, hidden = [growing[index] for index in left], [latest[index][0] for index in left]
            if growing:
                foreseen = self._head.forward(
                    [
                        Pairs(place.cache, states, draft.tokens[-1:])
                        for (draft, place), states in zip(growing, hidden, strict=True)
                    ]
                )
                latest = [(foreseen.hidden[i : i + 1], foreseen.logits[i]) for i in range(len(growing))]
        for draft, place in begun:
            place.likeliest = draft.likeliest
        self._places.update({seq: place for seq, place in zip(sequences, places, strict=True) if place is not None})
        return [draft.draft for draft in drafts]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn how far confidence is to be trusted. Rows of drafts stand on guessed hidden states: they go anyway."""
        for outcome in outcomes:
            place, calibration = self._places.get(outcome.sequence), self._calibration(outcome.sequence)
            likeliest = () if place is None else place.likeliest
            for index, probability in enumerate(likeliest[: len(outcome.draft)]):
                survived = index < outcome.num_accepted
                if not survived and outcome.sequence.reason is not None:
                    break  # it may have been right, and the text was over
                calibration.observe(probability, survived)
                if not survived:
                    break

    def _calibration(self, sequence: DecodedSequence) -> Calibration:
        return self._calibrations[sequence.request.sampling.greedy]

    def _is_worth_more(self, draft: GrowingDraft) -> bool:
        """Whether to draft a further token. The last one is taken back if it is not even worth verifying."""
        worth = draft.sequence.worth
        if draft.failed or worth is None:
            return not draft.is_done
        calibration = self._calibration(draft.sequence)
        chance = math.prod(map(calibration.rate, draft.likeliest))
        if chance < worth.verifying and len(draft.tokens) > 1:  # there is one at least, for there is no draft of none
            draft.drop_last()
        return not draft.is_done and chance * calibration.usual_rate >= worth.drafting

    def _catch_up(self, sequences: Sequence[DecodedSequence]) -> list[_Place | None]:
        """Feed the head what its sequences hold; where it is in each then, None where it has nothing to go by."""
        # Taken out while in use: a cache that a failure leaves half written is not met again.
        places = [self._places.pop(sequence, None) for sequence in sequences]
        news = []
        for index, (sequence, place) in enumerate(zip(sequences, places, strict=True)):
            if place is not None:
                place.cache.rollback()
            hidden = sequence.cache.hidden
            piece = None if hidden is None else hidden.take()
            if piece is not None:
                news.append((index, piece, self._pairs(sequence, place, piece)))
        if news:
            foreseen = self._head.forward([pairs for _, _, pairs in news])
            for number, (index, piece, pairs) in enumerate(news):
                pairs.cache.commit(len(pairs.tokens))
                start = piece.position + len(pairs.tokens) - pairs.cache.num_committed
                places[index] = _Place(
                    pairs.cache, start, foreseen.hidden[number : number + 1], foreseen.logits[number]
                )
        return places

    def _pairs(self, sequence: DecodedSequence, place: _Place | None, piece: HiddenPiece) -> Pairs:
        """The rows of a piece, each with the token after it; into a new cache if they don't follow on those known."""
        cache = place.cache if place is not None and place.end == piece.position else self._head.new_cache()
        first = piece.position + 1
        return Pairs(cache, piece.states, sequence.tokens[first : first + piece.states.shape[0]])

    def _is_at_end(self, sequence: DecodedSequence, place: _Place | None) -> bool:
        """Whether the head knows all rows but that of the pending token, which has none."""
        return place is not None and place.end == len(sequence.tokens) - 1
