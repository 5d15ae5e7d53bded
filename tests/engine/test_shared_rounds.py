"""Rounds that several sequences share: draft tokens compete for rows."""

from mtplx.engine.depth import share_rows
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.planning import Planner
from mtplx.engine.sequence import Sequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import AUTO, Request, SamplingParams
from tests.fakes import ByteTokenizer, TabularTarget

FLAT = [1.0 + 0.01 * rows for rows in range(64)]  # a row more costs next to nothing
FREE = [0.0, 0.0]  # what a draft token of each costs to make
STEEP = [float(rows) for rows in range(1, 65)]  # two rows cost twice what one does


def test_rows_that_cost_little_go_to_all_drafts() -> None:
    assert share_rows([[0.9, 0.8], [0.5]], FREE, FLAT, 0, 64) == [2, 1]


def test_no_draft_pays_where_rows_cost_as_much_as_tokens_bring() -> None:
    assert share_rows([[0.9, 0.8], [0.9]], FREE, STEEP, 0, 64) == [0, 0]


def test_the_likeliest_tokens_come_first() -> None:
    curve = [1.0, 1.0, 1.3, 1.6, 2.6, 2.7]  # the fifth row is dear
    assert share_rows([[0.6, 0.5], [0.9, 0.8]], FREE, curve, 0, 6) == [0, 2]


def test_a_step_in_the_costs_is_looked_beyond() -> None:
    curve = [1.0, 1.0, 2.4, 2.4, 2.4, 2.4]  # the third row is dear, and the next three come with it
    assert share_rows([[0.9, 0.9, 0.9, 0.9], []], FREE, curve, 0, 6) == [4, 0]


def test_there_are_no_more_rows_than_may_be() -> None:
    assert sum(share_rows([[0.9] * 8, [0.9] * 8], FREE, FLAT, 0, 7)) == 5
    assert sum(share_rows([[0.9] * 8, [0.9] * 8], FREE, FLAT, 4, 7)) == 1
    assert sum(share_rows([[0.9] * 8, [0.9] * 8], FREE, FLAT, 9, 7)) == 0


def test_drafts_must_be_worth_making_too() -> None:
    assert share_rows([[0.9, 0.85], [0.8]], [0.0, 1.0], FLAT, 0, 64) == [2, 0]
    assert share_rows([[0.9, 0.8], [0.9]], [0.1, 0.1], FLAT, 0, 64) == [2, 1]


# ---- what the planner makes of it -----------------------------------------------------------------------------------


def texts(*requests: Request) -> list[Sequence]:
    speculator = Speculator(TabularTarget(seed=1), {"ngram": NgramDrafter()}, ByteTokenizer())
    return [speculator.begin(request) for request in requests]


def planned(name: str, **options: object) -> Request:
    asked = {"depth": 8, "drafter": AUTO, "auto_depth": True} | options
    return Request(name, (1, 2, 3), 50, SamplingParams(temperature=0.0), **asked)


def measured(planner: Planner, cost_of_a_row: float) -> Planner:
    for _ in range(8):
        for num_rows in (2, 4, 12):
            planner.verified_together(num_rows, 1.0 + cost_of_a_row * num_rows)
    return planner


def depths(planner: Planner, sequences: list[Sequence], confidence: int = 5, most_rows: int = 32) -> list[int]:
    confidences = [{"ngram": confidence} if each.request.drafter != "none" else {} for each in sequences]
    return [plan.depth for plan in planner.plan_together(sequences, confidences, most_rows)]


def test_rounds_are_plain_until_it_is_known_what_they_cost() -> None:
    planner = Planner(("ngram",))
    sequences = texts(planned("a"), planned("b"))
    assert depths(planner, sequences) == [0, 0]
    assert min(depths(measured(planner, 0.01), sequences)) > 0


def test_depths_fall_where_rows_cost_more() -> None:
    sequences = texts(planned("a"), planned("b"))
    cheap, dear, dearest = (depths(measured(Planner(("ngram",)), cost), sequences) for cost in (0.01, 0.5, 5.0))
    assert sum(cheap) > sum(dear) > sum(dearest) == 0


def test_a_depth_that_a_request_fixes_is_kept_whatever_rows_cost() -> None:
    sequences = texts(
        planned("a", auto_depth=False, drafter="ngram", depth=7), planned("b"), planned("c", drafter="none")
    )
    assert depths(measured(Planner(("ngram",)), 0.5), sequences, confidence=1)[0] == 7
    assert depths(measured(Planner(("ngram",)), 5.0), sequences)[0] == 7


def test_without_confidence_nothing_is_copied() -> None:
    sequences = texts(planned("a"), planned("b"))
    assert depths(measured(Planner(("ngram",)), 0.01), sequences, confidence=0) == [0, 0]


def with_head(planner: Planner, sequences: list[Sequence], copying: int = 0) -> list[tuple[str, int, bool]]:
    confidences = [{"ngram": copying, "head": 0} for _ in sequences]
    plans = planner.plan_together(sequences, confidences, 32)
    return [(plan.drafter, plan.depth > 0, plan.worth is not None) for plan in plans]


def test_a_head_drafts_for_several_where_rows_cost_little_and_ends_where_more_is_not_worth_it() -> None:
    sequences = texts(planned("a"), planned("b"))
    assert with_head(measured(Planner(("ngram", "head")), 0.01), sequences) == [("head", True, True)] * 2
    assert with_head(measured(Planner(("ngram", "head")), 5.0), sequences) == [("none", False, False)] * 2


def test_what_copies_goes_before_a_head_where_it_is_surer() -> None:
    sequences = texts(planned("a"), planned("b"))
    assert with_head(measured(Planner(("ngram", "head")), 0.01), sequences, copying=7)[0][0] == "ngram"
