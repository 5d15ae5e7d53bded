"""What runs add up to."""

from dataclasses import replace

import pytest

from mtplx.server.bench.summary import summarize
from tests.server.bench.runs import GREEDY, drafted, run


def test_a_cell_is_summed_up_over_its_prompts() -> None:
    runs = [
        run(GREEDY, 4.0, prompt="1"),
        run(GREEDY, 2.0, prompt="2"),
        run(drafted(), 1.0, prompt="1", num_rounds=1, drafted_at=(1, 1, 1), accepted_at=(1, 1, 1)),
        run(drafted(), 2.0, prompt="2", num_rounds=4, drafted_at=(3, 1), accepted_at=(2,)),
    ]
    plain, ours = summarize(runs)
    assert (plain.cell, ours.cell) == (GREEDY, drafted())
    assert ours.num_prompts == 2
    assert ours.tokens_per_s == pytest.approx(8 / 3)
    assert ours.tokens_per_round == 8 / 5
    assert ours.acceptance == (3 / 4, 1 / 2, 1.0)
    assert ours.speedup.ratio == 2.0
    assert (ours.speedup.low, ours.speedup.high) == (1.0, 4.0)
    assert ours.draft_ms == pytest.approx(1e3 * 0.3 / 5)
    assert ours.verify_ms == pytest.approx(1e3 * 1.5 / 5)
    assert (ours.prefill_ms, ours.first_token_ms) == (250, 500)
    assert plain.speedup.ratio == plain.speedup.low == plain.speedup.high == 1.0


def test_a_speedup_is_over_plain_decoding_at_the_same_temperature() -> None:
    warm = replace(GREEDY, temperature=0.7)
    runs = [run(GREEDY, 2.0), run(drafted(), 1.0), run(warm, 9.0), run(drafted(temperature=0.7), 3.0)]
    assert {summary.cell: summary.speedup.ratio for summary in summarize(runs)} == {
        GREEDY: 1.0,
        drafted(): 2.0,
        warm: 1.0,
        drafted(temperature=0.7): 3.0,
    }


def test_repeats_of_a_prompt_are_one_prompt() -> None:
    runs = [
        run(cell, seconds, repeat=repeat) for cell, seconds in ((GREEDY, 3.0), (drafted(), 1.0)) for repeat in (0, 1)
    ]
    [_, ours] = summarize(runs)
    assert ours.num_prompts == 1
    assert (ours.speedup.low, ours.speedup.ratio, ours.speedup.high) == (3.0, 3.0, 3.0)
    assert ours.tokens_per_s == 4.0


def test_several_categories_are_summed_up_together_and_each() -> None:
    runs = [
        run(cell, prompt=category, category=category) for category in ("qa", "copy") for cell in (GREEDY, drafted())
    ]
    assert [(each.category, each.num_prompts) for each in summarize(runs) if each.cell == GREEDY] == [
        ("all", 2),
        ("qa", 1),
        ("copy", 1),
    ]


def test_lines_go_by_temperature_and_depth_with_the_engines_choice_last() -> None:
    cells = [GREEDY, drafted(3), drafted(10), drafted("auto"), drafted(3, drafter="self")]
    runs = [run(cell) for cell in reversed(cells)]
    assert [summary.cell for summary in summarize(runs)] == cells
