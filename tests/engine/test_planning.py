"""The planner against machines and drafters that are known: how near it comes to the best fixed choice."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mtplx.engine.planning import Planner
from mtplx.engine.sequence import Sequence
from mtplx.engine.types import Request, SamplingParams
from tests.engine.rehearsal import PROMPT, Course, Helper, Machine, always, linear, rehearse
from tests.fakes import TabularCache

DEPTHS = (0, 1, 2, 4, 8, 12, 16)


def native(num_rows: int) -> float:
    """As measured on a CPU with native kernels."""
    return 0.005 * float(np.interp(num_rows, [1, 2, 4, 8, 17], [1, 1.1, 1.5, 2.3, 4.2]))


def noisy(random: np.random.Generator, now_s: float) -> float:
    """A tenth up or down, and now and then three times as long."""
    return float(np.exp(0.08 * random.standard_normal())) * (3.0 if random.random() < 0.02 else 1.0)


def with_neighbour(random: np.random.Generator, now_s: float) -> float:
    """Half as fast for a second, then as fast as before for two."""
    return (2.0 if int(now_s) % 3 == 0 else 1.0) * noisy(random, now_s)


def warm(machine: Machine, helpers: dict[str, Helper], **options: object) -> Course:
    """The second text of an engine."""
    planner = Planner(tuple(helpers))
    rehearse(machine, helpers, planner=planner, seed=1, num_tokens=600, **options)
    return rehearse(machine, helpers, planner=planner, **options)


def best_fixed(machine: Machine, helpers: dict[str, Helper], drafter: str = "ngram") -> float:
    return min(rehearse(machine, helpers, depth=depth, drafter=drafter).seconds for depth in DEPTHS)


@pytest.mark.parametrize("round_s", [native, linear(1.0), linear(0.02)], ids=["native", "row by row", "flat"])
@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8, 0.95])
def test_it_is_as_fast_as_the_best_fixed_depth_within_a_twentieth(round_s, chance: float) -> None:
    machine, helpers, planner = Machine(round_s, noisy), {"ngram": Helper(always(chance))}, Planner(("ngram",))
    rehearse(machine, helpers, planner=planner, seed=9, num_tokens=600)

    def seconds(**options: object) -> float:
        return sum(rehearse(machine, helpers, num_tokens=500, seed=seed, **options).seconds for seed in range(3))

    assert min(seconds(depth=depth, drafter="ngram") for depth in DEPTHS) >= 0.95 * seconds(planner=planner)


def test_where_nothing_is_accepted_it_is_as_fast_as_plain_decoding_within_a_thirtieth() -> None:
    helpers = {"ngram": Helper(always(0.0)), "self": Helper(always(0.0), token_s=0.001, catch_up_s=0.0003)}
    for machine in (Machine(native), Machine(native, noisy), Machine(native, with_neighbour)):
        plain = rehearse(machine, helpers, drafter="none").seconds
        cold = rehearse(machine, helpers).seconds
        assert plain >= 0.97 * cold
        assert plain >= 0.97 * warm(machine, helpers).seconds


def test_it_follows_a_text_that_changes() -> None:
    def changing(place: int) -> float:
        return 0.95 if 400 <= place < 800 else 0.05

    helpers = {"ngram": Helper(changing)}
    course = warm(Machine(native), helpers)
    assert best_fixed(Machine(native), helpers) > 1.1 * course.seconds
    place, deep = 0, Counter[int]()
    for _, depth in course.rounds:
        deep[place // 400] += depth > 3
        place += 1 if depth <= 3 else depth // 2
    assert deep[0] < 10 < deep[1]


def test_it_settles_under_noise() -> None:
    depths = warm(Machine(native, noisy), {"self": Helper(always(0.8), token_s=0.0002)}).depths()
    num_changes = sum(before != after for before, after in pairwise(depths))
    assert num_changes < 0.2 * len(depths)


@pytest.mark.parametrize(
    ("helpers", "chosen"),
    [
        ({"ngram": Helper(always(0.9)), "self": Helper(always(0.7), token_s=0.001)}, "ngram"),
        ({"ngram": Helper(always(0.1)), "self": Helper(always(0.8), token_s=0.0005)}, "self"),
        ({"ngram": Helper(always(0.02)), "self": Helper(always(0.8), token_s=0.004)}, "none"),
        ({"ngram": Helper(always(0.0)), "model": Helper(always(0.9), token_s=0.0005),
          "self": Helper(always(0.5), token_s=0.0005)}, "model"),
    ],
    ids=["copying", "a cheap model", "none pays", "the better model"],
)  # fmt: skip
def test_it_chooses_the_drafter_that_pays(helpers: dict[str, Helper], chosen: str) -> None:
    drafters = Counter(drafter for drafter, _ in warm(Machine(native), helpers).rounds)
    assert drafters.most_common(1)[0][0] == chosen
    assert drafters[chosen] > 0.7 * drafters.total()


def test_copying_and_a_model_take_turns_as_each_pays() -> None:
    def in_stretches(place: int) -> float:
        return 0.97 if place % 200 < 100 else 0.0

    helpers = {"ngram": Helper(in_stretches), "self": Helper(always(0.75), token_s=0.0006, catch_up_s=0.0001)}
    seconds = warm(Machine(native), helpers).seconds
    assert seconds < 0.97 * warm(Machine(native), helpers, drafter="ngram").seconds
    assert seconds < 0.97 * warm(Machine(native), helpers, drafter="self").seconds


def test_a_drafter_that_would_have_to_read_a_long_text_for_a_short_answer_is_left_alone() -> None:
    helpers = {"self": Helper(always(0.7), token_s=0.0005, catch_up_s=0.01)}
    planner = Planner(("self",))
    rehearse(Machine(native), helpers, planner=planner, num_tokens=200, depth=3, drafter="self")
    course = rehearse(Machine(native), helpers, planner=planner, num_tokens=15, drafter="self")
    assert course.depths() == [0] * 15


def test_a_fixed_depth_and_a_named_drafter_are_taken_at_their_word() -> None:
    helpers = {"ngram": Helper(always(0.0)), "self": Helper(always(0.0), token_s=1.0)}
    course = rehearse(Machine(native), helpers, depth=3, drafter="self", num_tokens=50)
    assert set(course.rounds[:47]) == {("self", 3)}


def test_with_a_fixed_depth_only_who_drafts_is_chosen() -> None:
    helpers = {"ngram": Helper(always(0.9)), "self": Helper(always(0.0), token_s=0.001)}
    planner = Planner(tuple(helpers))
    rehearse(Machine(native), helpers, planner=planner, num_tokens=200)
    course = rehearse(Machine(native), helpers, planner=planner, depth=4, num_tokens=200)
    assert set(course.rounds[:-4]) <= {("ngram", 4), ("self", 4), ("none", 0)}
    assert course.rounds.count(("ngram", 4)) > 0.8 * len(course.rounds)


def test_drafts_of_a_sequence_that_decodes_plainly_teach_too() -> None:
    planner = Planner(("ngram",))
    rehearse(Machine(linear(3.0)), {"ngram": Helper(always(0.9))}, planner=planner, num_tokens=300)
    [shares] = planner.report().survival.values()
    assert 0.6 < shares[0] <= 1.0
    assert len(shares) == 16


@pytest.mark.parametrize("token_s", [0.0002, 0.001])
def test_a_further_draft_token_is_to_bring_what_it_costs(token_s: float) -> None:
    planner, helpers = Planner(("head",)), {"head": Helper(always(0.8), token_s, ends_early=True)}
    rehearse(Machine(native), helpers, planner=planner, num_tokens=600)
    course = rehearse(Machine(native), helpers, planner=planner, num_tokens=600)
    sequence = Sequence(
        Request("test", PROMPT, 300, SamplingParams(temperature=0.0), depth=16, drafter="head", auto_depth=True),
        TabularCache(),
        None,  # type: ignore[arg-type]
    )
    plan = planner.plan(sequence, {"head": 0})
    row_s = (native(5) - native(1)) / 4
    assert plan.depth == 8
    assert plan.worth == pytest.approx((np.array([token_s + row_s, row_s]) / (course.seconds / 600)), rel=0.1)
    sequence.request = replace(sequence.request, auto_depth=False)
    assert planner.plan(sequence, {"head": 0}).worth is None


def test_a_drafter_that_ends_where_it_is_unsure_beats_every_fixed_depth() -> None:
    def by_turns(place: int) -> float:
        return 0.95 if place % 20 < 12 else 0.1

    helpers = {"head": Helper(by_turns, 0.0005, ends_early=True)}
    seconds = warm(Machine(native, noisy), helpers).seconds
    assert seconds < 0.97 * best_fixed(Machine(native, noisy), {"head": Helper(by_turns, 0.0005)}, "head")


def test_one_that_is_hardly_ever_sure_is_left_alone() -> None:
    helpers = {"head": Helper(always(0.05), 0.0005, ends_early=True)}
    machine = Machine(native, noisy)
    plain = rehearse(machine, helpers, drafter="none").seconds
    assert plain >= 0.97 * warm(machine, helpers).seconds


def test_of_a_long_text_a_head_is_given_the_latest_rows_alone() -> None:
    """So catching up with the rest is no reason against it."""
    helpers = {
        "head": Helper(always(0.8), 0.0005, 0.0001, ends_early=True),
        "model": Helper(always(0.8), 0.0005, 0.0001),
    }
    planner = Planner(tuple(helpers))
    for name in helpers:
        rehearse(Machine(native), helpers, planner=planner, num_tokens=600, drafter=name)
    prompt = PROMPT * 400
    request = Request("test", prompt, 64, SamplingParams(temperature=0.0), depth=8, drafter="auto", auto_depth=True)
    sequence = Sequence(request, TabularCache(), None)  # type: ignore[arg-type]
    for _ in range(12):  # what rounds of so long a text cost must be seen first
        planner.verified(sequence, 1, native(1))
    assert planner.plan(sequence, {"head": 0, "model": 0}).drafter == "head"


def test_beside_a_head_a_copy_of_the_target_is_only_asked_by_name() -> None:
    def asked(drafters: tuple[str, ...], wanted: str) -> tuple[str, ...]:
        request = Request("test", PROMPT, 20, SamplingParams(temperature=0.0), depth=4, drafter=wanted, auto_depth=True)
        return Planner(drafters).candidates(Sequence(request, TabularCache(), None))  # type: ignore[arg-type]

    assert asked(("head", "self"), "auto") == ("head",)
    assert asked(("head", "self"), "self") == ("self",)
    assert asked(("ngram", "self"), "auto") == ("ngram", "self")
