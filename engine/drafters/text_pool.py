"""A bounded store of finished texts to copy from. Knows tokens; knows no names and no requests' rights."""

from collections import deque
from collections.abc import Sequence
from weakref import ref

from mtplx.engine.drafters.suffixes import TEXT_END, Match, SuffixAutomaton
from mtplx.engine.sequence import Sequence as DecodedSequence

_LEARNT_AT_ONCE = 512  # tokens, about a millisecond of work: nobody waits for a long text
_MAX_MATCH = 32  # tokens of a text that are looked for


class TextPool:
    """Holds at most `max_tokens` tokens, at about half a kilobyte each; the oldest go first.

    An index can't forget, so there are two of a third of the budget: when the newer is full, the older is dropped.
    The last third is for texts that wait to be indexed.
    """

    def __init__(self, max_tokens: int) -> None:
        self._share = max_tokens // 3
        self._waiting: deque[int] = deque(maxlen=self._share)
        self._newer, self._older = SuffixAutomaton(), SuffixAutomaton()
        self._unfinished: dict[ref[DecodedSequence], list[int]] = {}

    @property
    def num_tokens(self) -> int:
        return len(self._newer.tokens) + len(self._older.tokens) + len(self._waiting)

    def watch(self, sequence: DecodedSequence) -> None:
        """Take over the sequence's text once it has ended or nobody holds the sequence any more."""
        self._unfinished.setdefault(ref(sequence), sequence.tokens)

    def learn(self) -> None:
        """Take over the texts that have ended, and index some of what waits."""
        for watched, tokens in list(self._unfinished.items()):
            sequence = watched()
            if sequence is None or sequence.reason is not None:
                del self._unfinished[watched]
                self._waiting.extend([*tokens, TEXT_END])
        for _ in range(min(len(self._waiting), _LEARNT_AT_ONCE)):
            if len(self._newer.tokens) == self._share:
                self._newer, self._older = SuffixAutomaton(), self._newer
            self._newer.append(self._waiting.popleft())

    def find(self, tokens: Sequence[int]) -> Match:
        """The longest suffix of `tokens`, of up to 32, that is in the pool; of equals the newer."""
        suffix = tokens[-_MAX_MATCH:]
        return max(self._newer.find(suffix), self._older.find(suffix), key=lambda match: match.length)
