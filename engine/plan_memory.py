"""What the planner keeps of each sequence: how its drafts fared, how it stands with its drafters, what was chosen last.

Knows records and tokens; makes no choice.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from mtplx.engine.depth import Option
from mtplx.engine.survival import SurvivalRecord

FIRST_WAIT = 16  # rounds before a drafter is tried again
_OWN_MEMORY, _USUAL_MEMORY = 24.0, 256.0  # trials


def own_record() -> SurvivalRecord:
    """Of one sequence."""
    return SurvivalRecord(_OWN_MEMORY)


def usual_record(promised: float | None = None) -> SurvivalRecord:
    """Of all sequences."""
    return SurvivalRecord(_USUAL_MEMORY, promised)


@dataclass
class Proposal:
    """A draft whose tokens are met by the text one by one. One that `ended_early` held the next for not worth it, which
    counts as if that had not survived."""

    records: tuple[SurvivalRecord, ...]
    start: int
    tokens: tuple[int, ...]
    ended_early: bool = False
    num_met: int = 0

    def meet(self, text: list[int]) -> bool:
        """Learn from how the text has gone on; whether there is more to learn."""
        while self.num_met < len(self.tokens):
            place = self.start + self.num_met
            if place >= len(text):
                return True
            survived = text[place] == self.tokens[self.num_met]
            for record in self.records:
                record.observe(self.num_met, survived)
            if not survived:
                return False
            self.num_met += 1
        if self.ended_early:
            for record in self.records:
                record.observe(self.num_met, False)
        return False


@dataclass
class Use:
    """How a sequence stands with a drafter that keeps a place of its own in the text."""

    place: int = 0  # tokens of the text when it drafted last
    catching_up_s: float = 0.0
    wait: int = FIRST_WAIT
    next_trial: int = FIRST_WAIT


@dataclass
class Choice:
    """What was chosen where drafters were so confident, as an option has it, and for how many more such rounds."""

    option: Option
    num_rounds: int

    @property
    def plan(self) -> tuple[str, int]:
        return self.option.drafter, self.option.depth


@dataclass
class Memory:
    """What is kept of one sequence."""

    own: defaultdict[tuple[str, int], SurvivalRecord] = field(default_factory=lambda: defaultdict(own_record))
    own_reach: defaultdict[str, SurvivalRecord] = field(default_factory=lambda: defaultdict(own_record))
    proposals: dict[tuple[str, int], Proposal] = field(default_factory=dict)
    uses: defaultdict[str, Use] = field(default_factory=lambda: defaultdict(Use))
    chosen: dict[tuple[int, ...], Choice] = field(default_factory=dict)  # by how confident drafters were
    confidences: Mapping[str, int] = field(default_factory=dict)
    num_rounds: int = 0
    token_s: float = 0.0  # expected of the best plan, at the usual speed
    trying: tuple[str, int] | None = None
    trial_rounds: int = 0
