"""Who drafts in the next round of a sequence, and how much.

The choice rests on what is learnt (`experience`): what rounds cost, and how far drafts survive, by drafter, by how
confident the drafter was and by position; over all sequences, and in each. A draft that costs nothing to make is
learnt from without verifying it, for the text goes on and agrees with it or not: that is how a sequence that is
decoded plainly finds out that copying would pay. A drafter that costs time is tried now and then, ever more rarely
while that is in vain, and as long as all such trials together take no more than a hundredth of the time. What a
grammar forces is drafted whenever there is any, whoever drafts otherwise: nothing is to be learnt of that.

The choice knows past rounds and how confident drafters are, never the outcome that it decides on. Knows no model, no
clock, no array: times are handed in.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from weakref import WeakKeyDictionary

from mtplx.engine.costs import Costs
from mtplx.engine.depth import Option, Worth, choose, depth_options, early_option, share_rows
from mtplx.engine.experience import COPYING, ENDING_EARLY, SHORT_LAG, Experience, num_behind
from mtplx.engine.plan_memory import FIRST_WAIT, Choice, Memory, Proposal
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.survival import Promise
from mtplx.engine.types import AUTO, FORCED, HEAD, PLAIN, SELF, Draft, RoundRecord, SpeculationReport

_NEAR = 4  # draft positions among which an early end is expected
_TRIAL_SHARE = 0.01  # of the time, for trials
_MOST_SAVED = 64.0  # times a token's that may be saved up for trials
_TRIAL_ROUNDS = 4
_LONGEST_WAIT = 4096  # rounds between trials of a drafter
_LOOK_EVERY = 8  # rounds between looks for something to try
_STANDS = 3  # rounds for which a choice stands: choosing takes a fiftieth of a round of a small model
_HOPE = 0.6  # how much of the expected time a drafter that is not in use might take
_UNCERTAIN_HOPE = 0.7  # the same for a number of rows whose cost is uncertain
_HORIZON = 256  # tokens over which a drafter that must catch up may make up for it
_LEAST_CATCH_UP = 32  # rows a round that a drafter far behind comes nearer, at least
_FIRST_TRIAL_LAG = 256  # the most rows to catch up with in the first trial of all


@dataclass(frozen=True)
class Plan:
    """Who drafts in a round, and how many tokens; `asks` tells how many each drafter is to propose.

    What is proposed beyond the plan is not verified, but learnt from. `worth` tells a drafter that may end
    early when to; None where that is not asked or not known. `failed` says that there is no plan, because the drafter
    raised.
    """

    drafter: str = PLAIN
    depth: int = 0
    asks: Mapping[str, int] = field(default_factory=dict)
    worth: Worth | None = None
    failed: bool = False


class Planner:
    """Plans rounds of all sequences of an engine. `drafters` are those that there are, best guess first; `promises` is
    what was measured of some beforehand."""

    def __init__(self, drafters: tuple[str, ...], promises: Mapping[str, Promise] = MappingProxyType({})) -> None:
        self._drafters = tuple(drafter for drafter in drafters if drafter != FORCED)
        self._can_force = FORCED in drafters
        self._memories: WeakKeyDictionary[DecodedSequence, Memory] = WeakKeyDictionary()
        self._experience = Experience(self._drafters, promises)
        self._plans_together = False  # whether the latest plans were for several sequences
        self._is_shared = False  # whether the latest round was
        self._tried_before: set[str] = set()
        self._saved_s = 0.0  # for trials

    def candidates(self, sequence: DecodedSequence) -> tuple[str, ...]:
        """The drafters that the sequence's next round may ask."""
        wanted = sequence.request.drafter
        if sequence.max_depth <= 0:
            return ()
        forcing = (FORCED,) if self._can_force and sequence.request.grammar is not None else ()
        return (*forcing, *(each for each in self._drafters if wanted == each or self._is_auto(wanted, each)))

    def _is_auto(self, wanted: str, drafter: str) -> bool:
        """Whether the choice of this drafter is ours. A head guesses better and for less than a copy of the target."""
        return wanted == AUTO and (drafter != SELF or HEAD not in self._drafters)

    def _memory(self, sequence: DecodedSequence) -> Memory:
        memory = self._memories.get(sequence)
        if memory is None:
            memory = self._memories[sequence] = Memory()
        return memory

    # ---- before the round ---------------------------------------------------------------------------------------

    def plan(self, sequence: DecodedSequence, confidences: Mapping[str, int]) -> Plan:
        """The next round, given how confident each of the sequence's `candidates` is of a draft."""
        self._plans_together = False
        memory = self._memory(sequence)
        longest, request = sequence.max_depth, sequence.request
        if confidences.get(FORCED):
            return Plan(FORCED, longest, {FORCED: longest})
        confidences = _unforced(confidences)
        memory.confidences = confidences
        if not confidences:
            return Plan()
        self._experience.longest = max(self._experience.longest, longest)
        if request.auto_depth or request.drafter == AUTO:
            drafter, depth = self._choose(sequence, memory)
        else:
            drafter, depth = request.drafter, longest
        asks = {COPYING: longest} if confidences.get(COPYING) else {}
        worth = self._worth(sequence, memory, drafter, depth) if request.auto_depth and depth else None
        return Plan(drafter, depth, asks if drafter == PLAIN else {drafter: depth, **asks}, worth)

    def plan_together(
        self, sequences: Sequence[DecodedSequence], confidences: Sequence[Mapping[str, int]], most_rows: int
    ) -> list[Plan]:
        """The next round of several sequences in one forward of at most so many rows; arguments as for `plan`.

        A row costs the same whose ever it is: the likeliest draft tokens of all sequences get theirs, as long as they
        pay. What a grammar forces and drafts of a depth that the request fixes come first; others only if they cost
        little to make, for all wait for them.
        """
        self._plans_together = True
        drafters, fixed, shares = [], [], []
        for sequence, known in zip(sequences, confidences, strict=True):
            memory = self._memory(sequence)
            memory.confidences, memory.token_s, memory.trying, memory.trial_rounds = _unforced(known), 0.0, None, 0
            self._experience.longest = max(self._experience.longest, sequence.max_depth)
            drafter, depth = _given(sequence, known)
            own_shares: list[float] = []
            if not depth:
                drafter, own_shares = self._likeliest(sequence, memory)
            drafters.append(drafter)
            fixed.append(depth)
            shares.append(own_shares)
        chosen, worth = self._share_rows(drafters, shares, sum(fixed), most_rows)
        plans = []
        for sequence, known, drafter, *depths in zip(sequences, confidences, drafters, fixed, chosen, strict=True):
            depth = sum(depths)
            asks = {COPYING: sequence.max_depth} if known.get(COPYING) and drafter != FORCED else {}
            own_worth = worth if sequence.request.auto_depth else None
            plans.append(Plan(drafter, depth, {drafter: depth, **asks}, own_worth) if depth else Plan(asks=asks))
        return plans

    def _likeliest(self, sequence: DecodedSequence, memory: Memory) -> tuple[str, list[float]]:
        """Of the drafters that cost little, the one whose next token is likeliest to survive, and its shares."""
        found: tuple[str, list[float]] = (COPYING, [])
        for drafter in memory.confidences:
            if (drafter == COPYING and memory.confidences[drafter]) or drafter in ENDING_EARLY:
                shares = self._experience.shares(sequence, memory, drafter)
                if shares[:1] > found[1][:1]:
                    found = drafter, shares
        return found

    def _share_rows(
        self, drafters: Sequence[str], shares: Sequence[Sequence[float]], num_fixed: int, most_rows: int
    ) -> tuple[list[int], Worth | None]:
        """A depth for each sequence, 0 until it is known what rows cost, and what makes a token of a head worth it."""
        costs, num_rows = self._experience.shared, len(shares) + num_fixed
        if not any(shares) or not costs.measured:
            return [0] * len(shares), None
        draft_s = [0.0 if drafter == COPYING else costs.draft(drafter) for drafter in drafters]
        curve = costs.curve(max(most_rows, num_rows) + _NEAR)
        chosen = share_rows(shares, draft_s, curve, num_fixed, most_rows)
        num_tokens = len(shares) + sum(sum(each[:depth]) for each, depth in zip(shares, chosen, strict=True))
        used = num_rows + sum(chosen)
        round_s = curve[used - 1] + sum(cost * depth for cost, depth in zip(draft_s, chosen, strict=True))
        row_s = (curve[num_rows + _NEAR - 1] - curve[num_rows - 1]) / _NEAR
        rate = num_tokens / round_s
        return chosen, Worth((max(draft_s) + row_s) * rate, row_s * rate)

    def _choose(self, sequence: DecodedSequence, memory: Memory) -> tuple[str, int]:
        """Drafter and depth by measured gain; plain rounds until it is known what those cost."""
        costs = self._experience.costs_of(sequence)
        if not costs.measured:
            return PLAIN, 0
        if memory.trial_rounds:
            assert memory.trying is not None
            return memory.trying[0], min(memory.trying[1], sequence.max_depth)
        memory.trying = None
        situation, is_look = tuple(memory.confidences.values()), memory.num_rounds % _LOOK_EVERY == 0
        previous = memory.chosen.get(situation)
        if previous is not None and not is_look and previous.num_rounds > 0:
            previous.num_rounds -= 1
            memory.token_s = previous.option.token_s
            return previous.option.drafter, min(previous.option.depth, sequence.max_depth)
        curve = costs.curve(sequence.max_depth + 1)
        options = [Option(curve[0], PLAIN, 0)]
        for drafter in memory.confidences:
            options += self._options(sequence, memory, costs, drafter)
        best = choose(options, None if previous is None else previous.plan)
        memory.token_s = best.token_s
        if is_look:
            memory.trying = self._trial(sequence, memory, costs, options, best)
        if memory.trying is not None:
            return memory.trying
        is_quiet = best.drafter == PLAIN and not any(situation)  # nothing is learnt of drafts, for there are none
        memory.chosen[situation] = Choice(best, _LOOK_EVERY if is_quiet else _STANDS)
        return best.drafter, best.depth

    def _worth(self, sequence: DecodedSequence, memory: Memory, drafter: str, depth: int) -> Worth:
        costs = self._experience.costs_of(sequence)
        curve, near = costs.curve(depth + 1), min(depth, _NEAR)
        row_s = (curve[near] - curve[0]) / near
        return Worth((costs.draft(drafter) + row_s) / memory.token_s, row_s / memory.token_s)

    def _options(self, sequence: DecodedSequence, memory: Memory, costs: Costs, drafter: str) -> Iterator[Option]:
        confidence, longest = memory.confidences[drafter], sequence.max_depth
        if drafter == COPYING and not confidence:
            return
        shares = self._experience.shares(sequence, memory, drafter)
        curve, draft_s = costs.curve(longest + 1), costs.draft(drafter)
        once_s = self._experience.catch_up_s(sequence, memory, costs, drafter)
        start_s = once_s / max(1, min(_HORIZON, _remaining(sequence)))
        if sequence.request.auto_depth and drafter in ENDING_EARLY:
            reaches = self._experience.reaches(sequence, memory, drafter)
            yield early_option(drafter, shares, reaches, curve, draft_s, start_s)
        elif sequence.request.auto_depth:
            yield from depth_options(drafter, shares, curve, draft_s, start_s)
        else:
            yield Option((longest * draft_s + curve[longest]) / (1.0 + sum(shares)) + start_s, drafter, longest)

    # ---- trials -------------------------------------------------------------------------------------------------

    def _trial(
        self, sequence: DecodedSequence, memory: Memory, costs: Costs, options: list[Option], best: Option
    ) -> tuple[str, int] | None:
        """A drafter and depth that might be better than the best, and can be tried for what has been saved."""
        saved_s = self._saved_s / costs.slowness
        for drafter in memory.confidences:
            use = memory.uses[drafter]
            if drafter in (COPYING, best.drafter) or memory.num_rounds < use.next_trial:
                continue
            most_hopeful = min((option for option in options if option.drafter == drafter), default=best)
            once_s = self._experience.catch_up_s(sequence, memory, costs, drafter)
            num_rows = num_behind(sequence, memory, drafter)
            num_tokens: float = most_hopeful.depth
            if drafter in ENDING_EARLY and sequence.request.auto_depth:
                num_tokens = sum(self._experience.reaches(sequence, memory, drafter))
            price_s = once_s + _TRIAL_ROUNDS * num_tokens * costs.draft(drafter)
            is_first = drafter not in self._tried_before and num_rows <= _FIRST_TRIAL_LAG
            is_affordable = _HOPE * most_hopeful.token_s < best.token_s and price_s < saved_s
            if most_hopeful is not best and (is_first or is_affordable):
                self._tried_before.add(drafter)
                memory.trial_rounds = _TRIAL_ROUNDS + num_rows // _LEAST_CATCH_UP
                use.wait = min(2 * use.wait, _LONGEST_WAIT)
                use.next_trial = memory.num_rounds + use.wait
                return drafter, most_hopeful.depth
        uncertain = [
            option
            for option in options
            if option.drafter in (PLAIN, COPYING) and option is not best and costs.is_uncertain(option.depth + 1)
        ]
        rival = min(uncertain, default=best)
        if rival is not best and _UNCERTAIN_HOPE * rival.token_s < best.token_s and saved_s > 0.0:
            return rival.drafter, rival.depth
        return None

    # ---- after the round ----------------------------------------------------------------------------------------

    def drafted(
        self, sequence: DecodedSequence, drafter: str, proposal: Draft, *, num_asked: int, seconds: float
    ) -> None:
        """A drafter made this proposal, in this time, for it was asked for `num_asked` tokens."""
        if drafter == FORCED:
            return
        memory, tokens = self._memories[sequence], proposal.tokens
        num_made = len(tokens) + proposal.num_taken_back
        costs = self._experience.shared if self._plans_together else self._experience.costs_of(sequence)
        use, place = memory.uses[drafter], len(sequence.tokens)
        num_rows = num_behind(sequence, memory, drafter)
        if tokens:
            records = self._experience.records(sequence, memory, drafter)
            may_end_early = drafter in ENDING_EARLY and sequence.worth is not None
            ended_early = may_end_early and len(tokens) < num_asked
            memory.proposals[drafter, place] = Proposal(records, place, tokens, ended_early)
            if may_end_early:
                self._experience.observe_reach(sequence, memory, drafter, num_made, num_asked)
        if drafter == COPYING:
            costs.observe_draft(drafter, num_asked, seconds)
        elif not tokens:
            use.catching_up_s += seconds
            return
        elif num_rows <= SHORT_LAG:
            costs.observe_draft(drafter, num_made, seconds)
        elif costs.measured:
            catching_up_s = use.catching_up_s + seconds - costs.slowness * num_made * costs.draft(drafter)
            costs.observe_catch_up(drafter, num_rows, max(0.0, catching_up_s))
        use.place, use.catching_up_s = place, 0.0

    def verified(self, sequence: DecodedSequence, num_rows: int, seconds: float) -> None:
        """A forward for the sequence alone, and judging, took this long."""
        self._is_shared = False
        self._experience.observe_alone(sequence, num_rows, seconds)

    def verified_together(self, num_rows: int, seconds: float) -> None:
        """A forward of that many rows of several sequences, and judging, took this long."""
        self._is_shared = True
        self._experience.shared.observe_round(num_rows, seconds)

    def committed(self, sequence: DecodedSequence, record: RoundRecord, *, num_emitted: int) -> None:
        """The sequence has got that many tokens more by a round."""
        memory, costs = self._memory(sequence), self._experience.costs_of(sequence)
        memory.num_rounds += 1
        memory.proposals = {key: each for key, each in memory.proposals.items() if each.meet(sequence.tokens)}
        if record.drafter == FORCED or not memory.token_s or self._is_shared:  # what others cost is no trial's fault
            return
        elapsed_s = record.draft_s + record.verify_s
        self._saved_s += _TRIAL_SHARE * elapsed_s
        if memory.trying is not None:
            self._saved_s -= elapsed_s - num_emitted * memory.token_s * costs.slowness
            memory.trial_rounds = max(0, memory.trial_rounds - 1)
        elif record.num_drafted and record.drafter != COPYING:
            use = memory.uses[record.drafter]
            use.wait, use.next_trial = FIRST_WAIT, memory.num_rounds + FIRST_WAIT
        self._saved_s = min(self._saved_s, _MOST_SAVED * memory.token_s * costs.slowness)

    def report(self) -> SpeculationReport:
        """What has been learnt so far. May be called from any thread."""
        return self._experience.report()


def _unforced(confidences: Mapping[str, int]) -> Mapping[str, int]:
    return {drafter: confidence for drafter, confidence in confidences.items() if drafter != FORCED}


def _given(sequence: DecodedSequence, confidences: Mapping[str, int]) -> tuple[str, int]:
    """Who drafts beside others, and how many tokens, if that needs no choice; else the drafter that copies, and 0."""
    request, longest = sequence.request, sequence.max_depth
    if forced := confidences.get(FORCED):
        return FORCED, min(forced, longest) if request.auto_depth else longest
    if request.drafter in _unforced(confidences) and not request.auto_depth:
        return request.drafter, longest
    return COPYING, 0


def _remaining(sequence: DecodedSequence) -> int:
    return sequence.request.max_tokens - sequence.num_output
