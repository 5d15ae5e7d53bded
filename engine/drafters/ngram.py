"""Drafting by copying: what followed when a text looked like this before. Knows tokens only.

Prompt lookup (Saxena 2023; also the n-gram drafters of vLLM and llama.cpp) over prompt and output with a suffix
automaton, as in SAM Decoding (Hu et al., 2411.10666); besides, the request's prediction (OpenAI's Predicted Outputs)
and a pool of earlier texts.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from mtplx.engine.drafters.alignment import TRUSTED, Alignment
from mtplx.engine.drafters.suffixes import SuffixAutomaton
from mtplx.engine.drafters.text_pool import TextPool
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import Draft

_LEAST_SURE = 2  # tokens in common; a single one recurs by chance, and a prediction is better than that
_LONG_MATCH = 8  # tokens in common with the own text, with which no pool is asked
_MAX_POOLS = 16

# Confidences; those of longer matches lie between the second and the third.
_SINGLE, _GUESSED, _LONGEST, _RETURNED_TO, _FOLLOWED = 1, 2, 6, 7, 8


@dataclass(frozen=True)
class _Copy:
    """What to draft from: `following` gives the tokens for a depth."""

    confidence: int = 0
    following: Callable[[int], tuple[int, ...]] = lambda depth: ()


@dataclass
class _Place:
    """What of a sequence has been read, and what to copy after that."""

    text: SuffixAutomaton
    alignment: Alignment
    copy: _Copy = field(default_factory=_Copy)

    def read(self, sequence: DecodedSequence) -> bool:
        """Read the tokens that are new since the last time; False if there are none."""
        start, num_prompt = len(self.text.tokens), len(sequence.request.prompt)
        for position, token in enumerate(sequence.tokens[start:], start):
            self.text.append(token)
            if position >= num_prompt:
                self.alignment.append(token)
        return start < len(sequence.tokens)


class NgramDrafter:
    """Drafts are one-hot; nothing is learnt from outcomes.

    A prediction is preferred while at least two tokens of the output agree with it. Otherwise the longest match
    counts: the text's own, or with `pool_tokens` (0: nothing is kept) one in the pool that the request names, which
    holds so many tokens of finished texts. Pools are apart; of more than 16 the one longest unused is dropped.

    Confidence says what is copied: 1 what came after the last token before, which counts only where depth is left to
    the engine; 2 a prediction of which one token seems replaced; 3 to 6 a match of at least 2, 4, 8 and 16 tokens; 7 a
    prediction that the output has come back to; 8 one that it follows.
    """

    name = "ngram"

    def __init__(self, pool_tokens: int = 0) -> None:
        self._pool_tokens = pool_tokens
        self._pools: OrderedDict[str, TextPool] = OrderedDict()
        self._places: WeakKeyDictionary[DecodedSequence, _Place] = WeakKeyDictionary()

    def confidence(self, sequence: DecodedSequence) -> int:
        return self._copy(sequence).confidence

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        return [Draft(self._copy(sequence).following(depth)) for sequence, depth in zip(sequences, depths, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        pass

    def _copy(self, sequence: DecodedSequence) -> _Copy:
        """What to copy from now. Each token of the sequence is read once, however often this is asked."""
        place = self._places.get(sequence)
        if place is None:
            place = self._places[sequence] = _Place(SuffixAutomaton(), Alignment(sequence.request.prediction))
        if place.read(sequence):
            # Where the depth is ours to choose, whether a single token's drafts pay is measured before they are used.
            takes_single = sequence.request.auto_depth
            place.copy = best_copy(place.text, place.alignment, self._pool(sequence), takes_single=takes_single)
        return place.copy

    def _pool(self, sequence: DecodedSequence) -> TextPool | None:
        """The pool that the sequence's request names, with the sequence's own text to come.

        None where the text must not hang on what others wrote.
        """
        name = sequence.request.pool
        if name is None or not self._pool_tokens:
            return None
        pool = self._pools.pop(name, None) or TextPool(self._pool_tokens)
        self._pools[name] = pool
        if len(self._pools) > _MAX_POOLS:
            self._pools.popitem(last=False)
        pool.watch(sequence)
        pool.learn()
        return None if sequence.request.needs_same_drafts else pool


def best_copy(text: SuffixAutomaton, alignment: Alignment, pool: TextPool | None, *, takes_single: bool) -> _Copy:
    """The most promising of what `text` itself, the prediction and the pool have to copy; what a single token has in
    common with these counts only if `takes_single`."""
    predicted = bool(alignment.following(1))
    if predicted and alignment.agreement >= _LEAST_SURE:
        return _Copy(_FOLLOWED if alignment.agreement >= TRUSTED else _RETURNED_TO, alignment.following)
    match = text.match
    if pool is not None and match.length < _LONG_MATCH:
        match = max(match, pool.find(text.tokens), key=lambda match: match.length)
    if match.length >= _LEAST_SURE and match.following(1):
        return _Copy(min(1 + match.length.bit_length(), _LONGEST), match.following)
    if predicted:
        return _Copy(_GUESSED, alignment.following)
    return _Copy(_SINGLE, match.following) if takes_single and match.length and match.following(1) else _Copy()
