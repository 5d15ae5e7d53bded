"""What rounds and drafts so far say of the next one: what it will cost, and how far a draft will survive.

Kept over all sequences of an engine; what one sequence's own drafts did is in its `Memory`. Makes no choice.
"""

from collections import defaultdict, deque
from collections.abc import Mapping

from mtplx.engine.costs import Costs
from mtplx.engine.drafters.base import MAX_CONFIDENCE
from mtplx.engine.plan_memory import Memory, usual_record
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.survival import Promise, SurvivalRecord, pooled_survival, survival
from mtplx.engine.types import HEAD, MOST_HIDDEN_ROWS, SpeculationReport

ENDING_EARLY = frozenset({HEAD})  # drafters that end a draft where a further token would not pay
COPYING = "ngram"  # the drafter that copies: its drafts cost next to nothing, and without confidence there are none
SHORT_LAG = 32  # rows that a drafter catches up with in passing

_MOST_EARLY = 8  # tokens to ask a drafter for that ends early
_REACH_GUESS = 0.7  # the chance that a drafter that may end early goes on, until measured
_COPY_WEIGHT = 4.0  # trials of a text's own that count for as much as what is usual, where texts differ much
_HEAD_WEIGHT = 24.0  # the same where they don't: heads guess about as well in one text as in another
_MOST_ALONE = 32  # rounds of single sequences, the latest, that say what shared ones will cost
_NEGLIGIBLE = 0.02  # chance of a draft position that is not worth a thought


class Experience:
    """With the drafters that there are, and what is promised of some. `longest` is the longest draft that was ever
    allowed."""

    def __init__(self, drafters: tuple[str, ...], promises: Mapping[str, Promise]) -> None:
        self.longest = 0
        self._shared = Costs()
        self._alone: deque[tuple[int, float]] = deque(maxlen=_MOST_ALONE)
        self._drafters = drafters
        self._promises = promises
        self._usual: dict[tuple[str, bool, int], SurvivalRecord] = {}
        self._usual_reach: defaultdict[tuple[str, bool], SurvivalRecord] = defaultdict(usual_record)
        self._costs: dict[tuple[bool, int], Costs] = {}
        self._latest = Costs()

    @property
    def shared(self) -> Costs:
        """Costs of rounds of several sequences, by all their rows. Learns of rounds of single ones when it is asked."""
        while self._alone:
            self._shared.observe_round(*self._alone.popleft())
        return self._shared

    def observe_alone(self, sequence: DecodedSequence, num_rows: int, seconds: float) -> None:
        """A round of that sequence and no other."""
        self.costs_of(sequence).observe_round(num_rows, seconds)
        self._alone.append((num_rows, seconds))

    def shares(self, sequence: DecodedSequence, memory: Memory, drafter: str) -> list[float]:
        """How likely the drafter's next draft survives up to each position."""
        own, usual = self.records(sequence, memory, drafter)
        guess = memory.confidences[drafter] / (MAX_CONFIDENCE + 1) or 0.5
        weight = _HEAD_WEIGHT if drafter == HEAD else _COPY_WEIGHT
        return survival(own, usual, guess, _most_asked(sequence, drafter), _NEGLIGIBLE, weight)

    def reaches(self, sequence: DecodedSequence, memory: Memory, drafter: str) -> list[float]:
        """How likely the drafter, asked for as much as it ever is, drafts a token at each position."""
        usual = self._usual_reach[drafter, sequence.request.sampling.greedy]
        return survival(memory.own_reach[drafter], usual, _REACH_GUESS, _most_asked(sequence, drafter), 0.0)

    def catch_up_s(self, sequence: DecodedSequence, memory: Memory, costs: Costs, drafter: str) -> float:
        """What a drafter that has been idle costs before it can draft again."""
        if drafter == COPYING:
            return 0.0
        num_rows = num_behind(sequence, memory, drafter)
        return costs.catch_up(drafter) * num_rows if num_rows > SHORT_LAG else 0.0

    def observe_reach(
        self, sequence: DecodedSequence, memory: Memory, drafter: str, num_tokens: int, num_asked: int
    ) -> None:
        usual = self._usual_reach[drafter, sequence.request.sampling.greedy]
        for record in (memory.own_reach[drafter], usual):
            for position in range(min(num_tokens + 1, num_asked)):
                record.observe(position, position < num_tokens)

    def report(self) -> SpeculationReport:
        """What has been learnt so far. May be called from any thread."""
        costs = self._latest
        usual = dict(self._usual)
        return SpeculationReport(
            verify_s={rows: seconds * costs.slowness for rows, seconds in sorted(costs.measured.items())},
            draft_s={
                name: cost * costs.slowness
                for name in self._drafters
                if (cost := costs.measured_draft(name)) is not None
            },
            survival={
                name: pooled_survival([record for key, record in usual.items() if key[0] == name], self.longest)
                for name in self._drafters
            },
        )

    def records(self, sequence: DecodedSequence, memory: Memory, drafter: str) -> tuple[SurvivalRecord, SurvivalRecord]:
        """How drafts like the drafter's next one survived in this sequence, and in all."""
        confidence, greedy = memory.confidences[drafter], sequence.request.sampling.greedy
        if (drafter, greedy, confidence) not in self._usual:
            promise = self._promises.get(drafter)
            promised = None if promise is None else promise.greedy if greedy else promise.sampled
            self._usual[drafter, greedy, confidence] = usual_record(promised)
        return memory.own[drafter, confidence], self._usual[drafter, greedy, confidence]

    def costs_of(self, sequence: DecodedSequence) -> Costs:
        """Costs of rounds with as long a text, within a factor of two, and the same way to choose tokens."""
        kind = sequence.request.sampling.greedy, (len(sequence.tokens) // 256).bit_length()
        if kind not in self._costs:
            self._costs[kind] = self._latest.similar()
        self._latest = self._costs[kind]
        return self._latest


def _most_asked(sequence: DecodedSequence, drafter: str) -> int:
    """The most tokens that the drafter is asked for if it is left to us."""
    return min(sequence.max_depth, _MOST_EARLY) if drafter in ENDING_EARLY else sequence.max_depth


def num_behind(sequence: DecodedSequence, memory: Memory, drafter: str) -> int:
    """Rows of the text that a drafter has still to see. A head begins late rather than to see many."""
    num_rows = len(sequence.tokens) - memory.uses[drafter].place
    return min(num_rows, MOST_HIDDEN_ROWS) if drafter == HEAD else num_rows
