"""Rounds without a model: a machine with given costs, drafters that are right as often as given, and a planner.

Time is counted, not measured, so that what a planner loses against the best fixed depth is a number that repeats.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mtplx.engine.depth import Worth
from mtplx.engine.experience import COPYING
from mtplx.engine.planning import Planner
from mtplx.engine.sequence import Sequence
from mtplx.engine.types import AUTO, PLAIN, Draft, Request, RoundRecord, SamplingParams
from tests.fakes import TabularCache

PROMPT = tuple(range(50))
RIGHT, WRONG = 1, 0


@dataclass(frozen=True)
class Helper:
    """A drafter: the chance that it knows the token at a place, what a token costs it, and catching up with a row.

    One that `ends_early` is aware of its chances, and goes on as long as they are what is asked for.
    """

    chance: Callable[[int], float]
    token_s: float = 0.0
    catch_up_s: float = 0.0
    ends_early: bool = False

    def num_drafted(self, place: int, num_asked: int, worth: Worth | None) -> tuple[int, int]:
        """How many tokens it drafts, and how many of them it proposes."""
        share = 1.0
        for count in range(1, num_asked + 1):
            share *= self.chance(place + count - 1)
            if self.ends_early and worth is not None and share < worth.drafting:
                return count, max(1, count - (share < worth.verifying))
        return num_asked, num_asked


@dataclass
class Machine:
    """Seconds of a round by its number of rows; the time of each is multiplied by what `noise` gives."""

    round_s: Callable[[int], float]
    noise: Callable[[np.random.Generator, float], float] = lambda random, now_s: 1.0


@dataclass
class Course:
    """How a text went: seconds in all, and drafter and depth of each round."""

    seconds: float = 0.0
    rounds: list[tuple[str, int]] = field(default_factory=list)

    def depths(self, start: int = 0) -> list[int]:
        return [depth for _, depth in self.rounds[start:]]


def always(chance: float) -> Callable[[int], float]:
    return lambda place: chance


def linear(step: float) -> Callable[[int], float]:
    """Costs of 1, 1 + step, 1 + 2·step … hundredths of a second."""
    return lambda num_rows: 0.01 * (1.0 + step * (num_rows - 1))


def rehearse(
    machine: Machine,
    helpers: Mapping[str, Helper],
    *,
    depth: int | None = None,
    drafter: str = AUTO,
    num_tokens: int = 1000,
    planner: Planner | None = None,
    seed: int = 0,
) -> Course:
    """Decode one text; `depth` None leaves it to the planner. The same seed gives the same text to draft."""
    request = Request(
        "rehearsal", PROMPT, num_tokens, SamplingParams(temperature=0.0), (), 16 if depth is None else depth, drafter,
        auto_depth=depth is None,
    )  # fmt: skip
    sequence = Sequence(request, TabularCache(), None)  # type: ignore[arg-type]
    planner = planner or Planner(tuple(helpers))
    random = np.random.default_rng(seed + 1000)
    luck = np.random.default_rng(seed).random((len(helpers), len(PROMPT) + num_tokens + 64))
    knows = {
        name: [row[place] < helper.chance(place - len(PROMPT)) for place in range(len(row))]
        for row, (name, helper) in zip(luck, helpers.items(), strict=True)
    }
    places = dict.fromkeys(helpers, 0)
    course = Course()
    while sequence.num_output < num_tokens:
        _round(machine, helpers, planner, sequence, knows, places, random, course)
    return course


def _round(machine, helpers, planner, sequence, knows, places, random, course) -> None:  # type: ignore[no-untyped-def]
    place = len(sequence.tokens)
    confidences = {name: _confidence(name, knows[name], place) for name in planner.candidates(sequence)}
    plan = planner.plan(sequence, confidences)
    sequence.worth = plan.worth
    num_right, num_drafted, draft_s = 0, 0, 0.0
    for name, num_asked in plan.asks.items():
        helper = helpers[name]
        num_made, num_proposed = helper.num_drafted(place - len(PROMPT), num_asked, plan.worth)
        seconds = helper.token_s * num_made + helper.catch_up_s * (place - places[name])
        places[name] = place
        tokens = tuple(RIGHT if known else WRONG for known in knows[name][place : place + num_proposed])
        proposal = Draft(tokens, num_taken_back=num_made - num_proposed)
        planner.drafted(sequence, name, proposal, num_asked=num_asked, seconds=seconds)
        draft_s += seconds
        if name == plan.drafter:
            num_drafted = min(plan.depth, num_proposed)
            num_right = (*tokens[: plan.depth], WRONG).index(WRONG)
    verify_s = machine.round_s(num_drafted + 1) * machine.noise(random, course.seconds)
    planner.verified(sequence, num_drafted + 1, verify_s)
    num_emitted = min(num_right + 1, sequence.request.max_tokens - sequence.num_output)
    for _ in range(num_emitted):
        sequence.append(RIGHT)
    record = RoundRecord(plan.drafter, num_drafted, num_right, False, plan.depth, draft_s, verify_s)
    planner.committed(sequence, record, num_emitted=num_emitted)
    course.seconds += draft_s + verify_s
    course.rounds.append((plan.drafter if num_drafted else PLAIN, num_drafted))


def _confidence(name: str, knows: list[bool], place: int) -> int:
    """Of copying, how long it has been right; models tell nothing."""
    if name != COPYING:
        return 0
    run = 0
    while run < 7 and knows[place - 1 - run]:
        run += 1
    return max(run, 1)
