"""How far drafts survive, and what follows from it for the depth."""

import pytest

from mtplx.engine.depth import Option, choose, depth_options
from mtplx.engine.survival import SurvivalRecord, pooled_survival, survival


def record(*positions: tuple[int, int], memory: float = 1e9) -> SurvivalRecord:
    """A record of drafts: at each position so many that survived, of so many."""
    kept = SurvivalRecord(memory)
    for position, (num_survived, num_tried) in enumerate(positions):
        for trial in range(num_tried):
            kept.observe(position, trial < num_survived)
    return kept


def test_without_trials_the_guess_is_all_there_is() -> None:
    assert survival(record(), record(), 0.5, 3, 0.0) == pytest.approx([0.5, 0.25, 0.125])


def test_what_is_usual_counts_until_the_text_has_trials_of_its_own() -> None:
    usual = record((900, 1000))
    [before] = survival(record(), usual, 0.5, 1, 0.0)
    [after] = survival(record((0, 1000)), usual, 0.5, 1, 0.0)
    assert (before, after) == pytest.approx((0.9, 0.0), abs=0.01)


def test_a_text_that_differs_at_one_position_is_expected_to_differ_at_the_next() -> None:
    usual = record((500, 1000), (500, 1000))
    first, second = survival(record((900, 1000)), usual, 0.5, 2, 0.0)
    assert second / first == pytest.approx(0.9, abs=0.01)


def test_positions_that_are_hardly_reached_are_left_out() -> None:
    assert len(survival(record(), record(), 0.1, 16, 0.02)) == 1


def test_old_trials_fade() -> None:
    kept = record((500, 500), memory=20)
    for _ in range(60):
        kept.observe(0, False)
    survived, tried = kept.counts(0)
    assert survived / tried < 0.1


def test_drafts_of_several_sorts_are_pooled_by_how_many_there_were() -> None:
    sorts = [record((90, 90), (45, 90)), record((0, 10))]
    assert pooled_survival(sorts, 4) == pytest.approx((0.9, 0.45))
    assert pooled_survival([], 4) == ()


def test_seconds_a_token_are_those_of_the_round_by_the_tokens_it_brings() -> None:
    options = depth_options("self", [0.5, 0.25], [1.0, 1.2, 1.5], draft_s=0.1, start_s=0.01)
    assert [option.depth for option in options] == [1, 2]
    assert [option.token_s for option in options] == pytest.approx([1.3 / 1.5 + 0.01, 1.7 / 1.75 + 0.01])


def test_a_change_must_promise_more_than_a_little() -> None:
    plain, better, best = Option(1.0, "none", 0), Option(0.98, "ngram", 1), Option(0.90, "ngram", 2)
    assert choose([plain, better], ("none", 0)) == plain
    assert choose([plain, better], None) == better
    assert choose([plain, better, best], ("none", 0)) == best


def test_a_promise_is_believed_until_much_was_seen() -> None:
    def expected(num_tried: int) -> float:
        usual = SurvivalRecord(1e9, promised=0.6)
        for _ in range(num_tried):
            usual.observe(0, survived=False)
        return survival(SurvivalRecord(1e9), usual, 0.5, 1, 0.0)[0]

    assert expected(0) == pytest.approx(0.6)
    assert expected(8) > 0.4
    assert expected(1000) < 0.05


def test_the_more_usual_counts_the_less_a_text_of_its_own_moves_it() -> None:
    usual, own = record((50, 100)), record((0, 8))
    light, heavy = (survival(own, usual, 0.5, 1, 0.0, weight)[0] for weight in (4.0, 24.0))
    assert light < 0.2 < 0.35 < heavy < 0.5
