"""A draft in the making: each token drawn from a drafter's logits as the request itself would draw it.

Knows requests and their processors. Knows no model, and not where logits come from.
"""

import logging

import numpy as np
import numpy.typing as npt

from mtplx.engine.randomness import Purpose
from mtplx.engine.sampling import (
    Scores,
    adjust,
    check_finite,
    distribution,
    draw,
    draw_coupled,
    most_likely,
)
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import Distribution, Draft, Logits
from mtplx.engine.vocabulary_part import PartOfVocabulary

logger = logging.getLogger(__name__)


class GrowingDraft:
    """The draft of `depth` tokens after a sequence, of which none is there yet. `depth` 0 asks for none.

    `likeliest` has for each token the probability of the one that the drafter held likeliest, if the sequence's drafts
    are to end where a further token is not worth adding.
    """

    def __init__(self, sequence: DecodedSequence, depth: int) -> None:
        self.sequence = sequence
        self.depth = depth
        self.tokens: list[int] = []
        self.likeliest: list[float] = []
        self.failed = False
        self._history = sequence.history.ahead()
        self._distributions: list[Distribution] = []
        self._num_taken_back = 0

    @property
    def draft(self) -> Draft:
        if self.failed:
            return Draft(failed=True)
        return Draft(tuple(self.tokens), self._distributions or None, num_taken_back=self._num_taken_back)

    @property
    def is_done(self) -> bool:
        return self.failed or len(self.tokens) >= self.depth

    def drop_last(self) -> None:
        """Take the last token back, and add no more."""
        self.depth = len(self.tokens) - 1
        self._num_taken_back += 1
        for parts in (self.tokens, self.likeliest, self._distributions):
            del parts[self.depth :]

    def add(self, logits: Logits, part: PartOfVocabulary | None = None) -> None:
        """Add a token by the logits [V] for it, or by those [N] of a part of the vocabulary.

        The draft is done where no token of the part is allowed. Raises NonFiniteLogitsError for logits that no token
        can be drawn from.
        """
        if self.tokens:
            self._history.push(self.tokens[-1])
        position = self.sequence.num_output + len(self.tokens)
        check_finite(logits, position)
        token, probabilities = self._draw(logits, part, position)
        if token is None:
            self.depth = len(self.tokens)
            return
        self.tokens.append(token)
        if probabilities is not None:
            self._distributions.append(probabilities)
        if self.sequence.worth is not None:
            self.likeliest.append(_likeliest_share(logits) if probabilities is None else float(probabilities.max()))

    def _draw(
        self, logits: Logits, part: PartOfVocabulary | None, position: int
    ) -> tuple[int | None, Distribution | None]:
        """The token, None if none is allowed, and the distribution that it was drawn from."""
        scores = adjust(logits, self.sequence.request.sampling, self._history, part)
        if part is None:
            return _drawn(self.sequence, scores, position)
        if scores.max() == -np.inf:
            return None, None
        place, probabilities = _drawn(self.sequence, scores, position, part.ids)
        return int(part.ids[place]), None if probabilities is None else part.all_probabilities(probabilities)


class Growth:
    """Adds tokens to drafts of the drafter `name`. A failure is of the one draft alone, and the first is logged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_failed = False

    def add(self, draft: GrowingDraft, logits: Logits, part: PartOfVocabulary | None = None) -> None:
        try:
            draft.add(logits, part)
        except Exception:
            if not self._has_failed:
                logger.exception("the drafter %r failed on a sequence; its round goes on without", self._name)
            self._has_failed = draft.failed = True


def _drawn(
    sequence: DecodedSequence, scores: Scores, position: int, ids: npt.NDArray[np.int64] | None = None
) -> tuple[int, Distribution | None]:
    """The index in `scores` to draft at `position` of the output, and the distribution it was drawn from; None is
    one-hot. `ids` are the tokens that scores are of, if not all."""
    params = sequence.request.sampling
    if params.greedy:
        return most_likely(scores), None
    probabilities = distribution(scores, params)
    if sequence.request.acceptance == "coupled":
        noise = sequence.key.noise(position, len(probabilities) if ids is None else int(ids[-1]) + 1)
        return draw_coupled(probabilities, noise if ids is None else noise[ids]), None
    return draw(probabilities, sequence.key.uniform(position, Purpose.DRAFT, sequence.num_output)), probabilities


def _likeliest_share(logits: Logits) -> float:
    """The probability of the likeliest token."""
    return 1.0 / float(np.exp(logits - logits.max()).sum())
