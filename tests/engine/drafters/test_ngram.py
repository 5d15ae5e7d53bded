"""The n-gram drafter copies what followed the longest earlier match, or what was predicted."""

import gc
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest

from mtplx.engine.drafters.base import MAX_CONFIDENCE
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.drafters.suffixes import SuffixAutomaton
from mtplx.engine.drafters.text_pool import TextPool
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.text.stream import TextStream
from mtplx.engine.types import Acceptance, Request, SamplingParams
from tests.fakes import ByteTokenizer, TabularCache


def sequence(*prompt: int, prediction: tuple[int, ...] = (), pool: str | None = None) -> DecodedSequence:
    request = Request("test", prompt, 100, depth=3, drafter="ngram", prediction=prediction, pool=pool)
    return DecodedSequence(request, TabularCache(), TextStream(ByteTokenizer().decode, (), ()))


def proposal(drafter: NgramDrafter, of: DecodedSequence, depth: int = 3) -> tuple[int, ...]:
    [draft] = drafter.propose([of], [depth])
    assert draft.distributions is None
    assert (drafter.confidence(of) == 0) == (not draft.tokens)
    return draft.tokens


@pytest.mark.parametrize(
    ("tokens", "depth", "draft"),
    [
        ([1, 2, 3, 4, 9, 1, 2], 2, (3, 4)),
        ([1, 2, 3, 1, 2, 4, 1, 2], 1, (4,)),  # of equally long matches, the latest
        ([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], 1, (3,)),  # the longer match, though another is later
        ([1, 2, 9, 1, 2], 5, (9, 1, 2, 9, 1)),  # past the end, a period goes on
        ([5, 5, 5], 3, (5, 5, 5)),
        ([1, 2, 3, 4], 3, ()),
        ([1, 2, 3, 1], 3, ()),  # one token in common is chance
        ([1], 3, ()),
    ],
)
def test_drafts_from_the_text_itself(tokens: list[int], depth: int, draft: tuple[int, ...]) -> None:
    assert proposal(NgramDrafter(), sequence(*tokens), depth) == draft


def test_a_text_that_grows_is_drafted_like_one_that_is_new() -> None:
    tokens = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2, 2, 2, 1, 2, 3, 1]
    drafter, growing = NgramDrafter(), sequence(tokens[0])
    for length in range(2, len(tokens)):
        growing.append(tokens[length - 1])
        assert proposal(drafter, growing) == proposal(NgramDrafter(), sequence(*tokens[:length]))


def test_several_sequences_are_drafted_at_once_each_to_its_depth() -> None:
    drafts = NgramDrafter().propose([sequence(5, 6, 7, 5, 6), sequence(8, 8, 8)], [1, 2])
    assert [draft.tokens for draft in drafts] == [(7,), (8, 8)]


def calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[Any]:
    """Notes the argument of each call of a method from now on."""
    arguments: list[Any] = []
    method = getattr(owner, name)

    def noted(self: object, argument: Any) -> Any:
        arguments.append(argument)
        return method(self, argument)

    monkeypatch.setattr(owner, name, noted)
    return arguments


def test_a_rounds_work_is_done_once_however_often_the_drafter_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    read, searches = calls(monkeypatch, SuffixAutomaton, "append"), calls(monkeypatch, TextPool, "find")
    drafter, growing = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, pool="team")
    for num_rounds, token in enumerate((4, 5, 6), 1):
        drafter.confidence(growing)
        drafter.propose([growing], [3])
        assert len(searches) == num_rounds
        growing.append(token)
    assert read == [1, 2, 3, 4, 5]


def test_a_sequence_that_is_gone_is_forgotten() -> None:
    drafter, gone = NgramDrafter(), sequence(1, 2, 1, 2)
    proposal(drafter, gone)
    watched = ref(gone)
    del gone
    gc.collect()
    assert watched() is None


class TestPrediction:
    def test_the_first_draft_is_its_beginning(self) -> None:
        assert proposal(NgramDrafter(), sequence(1, 2, 3, 1, 2, prediction=(7, 8, 9, 10))) == (7, 8, 9)

    def test_no_match_runs_across_the_end_of_the_prompt_into_the_prediction(self) -> None:
        drafter, predicted = NgramDrafter(), sequence(1, 2, prediction=(3, 4, 5))
        for token in (9, 8, 2, 3):
            predicted.append(token)
        assert proposal(drafter, predicted) == ()

    def test_only_the_output_is_looked_for_in_it(self) -> None:
        drafter, predicted = NgramDrafter(), sequence(1, 2, 3, prediction=(7, 2, 3, 8))
        assert proposal(drafter, predicted, 1) == (7,)

    def test_it_is_preferred_to_a_longer_match(self) -> None:
        """The text has the words as they were before, the prediction as they are expected now."""
        predicted = sequence(0, 1, 2, 3, 4, 1, prediction=(9, 2, 3, 5))
        for token in (1, 2, 3):
            predicted.append(token)
        assert proposal(NgramDrafter(), predicted, 1) == (5,)

    def test_a_match_is_preferred_to_the_guess_that_a_token_was_replaced(self) -> None:
        drafter, predicted = NgramDrafter(), sequence(1, 2, 3, 1, prediction=(7, 8, 9))
        predicted.append(2)
        assert proposal(drafter, predicted, 1) == (3,)
        other = sequence(1, prediction=(7, 8, 9))
        other.append(2)
        assert proposal(drafter, other, 1) == (8,)

    def test_past_its_end_the_text_itself_is_copied(self) -> None:
        predicted = sequence(1, 7, 8, 5, prediction=(7, 8))
        predicted.append(7)
        predicted.append(8)
        assert proposal(NgramDrafter(), predicted, 1) == (5,)


class TestConfidence:
    @pytest.mark.parametrize(
        ("length", "confidence"), [(0, 0), (1, 0), (2, 3), (3, 3), (4, 4), (7, 4), (8, 5), (15, 5), (16, 6), (99, 6)]
    )
    def test_grows_with_the_logarithm_of_the_match(self, length: int, confidence: int) -> None:
        repeated = range(100, 100 + length)
        assert NgramDrafter().confidence(sequence(*repeated, 1, *repeated)) == confidence

    def test_is_least_where_a_single_token_recurs_and_only_if_the_depth_is_left_to_the_engine(self) -> None:
        fixed = sequence(1, 2, 3, 1)
        assert proposal(NgramDrafter(), fixed) == ()
        free = DecodedSequence(replace(fixed.request, auto_depth=True), fixed.cache, fixed.text)
        assert proposal(NgramDrafter(), free) == (2, 3, 1)
        assert NgramDrafter().confidence(free) == 1

    @pytest.mark.parametrize(
        ("output", "confidence"),
        [([], 8), ([0], 8), ([0, 90], 2), ([0, 90, 2], 2), ([0, 90, 2, 3], 7), ([0, 90, *range(2, 10)], 8)],
    )
    def test_tells_how_well_a_prediction_is_followed(self, output: list[int], confidence: int) -> None:
        predicted = sequence(99, prediction=tuple(range(20)))
        for token in output:
            predicted.append(token)
        assert NgramDrafter().confidence(predicted) == confidence <= MAX_CONFIDENCE


class TestPools:
    def test_a_text_that_has_ended_is_copied_from_by_others(self) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, pool="team")
        proposal(drafter, first)
        first.append(4)
        first.append(5)
        first.reason = "stop"
        assert proposal(drafter, sequence(9, 2, 3, pool="team")) == (4, 5)

    def test_nobody_else_is_shown_a_pools_texts(self) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, 4, pool="team")
        proposal(drafter, first)
        first.reason = "stop"
        assert proposal(drafter, sequence(9, 2, 3, pool="others")) == ()
        assert proposal(drafter, sequence(9, 2, 3, pool=None)) == ()
        assert proposal(drafter, sequence(9, 2, 3, pool="team")) == (4,)

    @pytest.mark.parametrize(("rule", "expected"), [("rejection", ()), ("block", ()), ("coupled", (4,))])
    def test_a_text_whose_seed_needs_the_same_drafts_takes_nothing_from_it(
        self, rule: Acceptance, expected: tuple[int, ...]
    ) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, 4, pool="team")
        proposal(drafter, first)
        first.reason = "stop"
        seeded = sequence(9, 2, 3, pool="team")
        seeded.request = replace(seeded.request, sampling=SamplingParams(seed=1), acceptance=rule)
        assert proposal(drafter, seeded) == expected

    def test_texts_of_requests_without_a_pool_are_not_kept(self) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, 4)
        proposal(drafter, first)
        first.reason = "stop"
        for pool in ("team", None, ""):
            assert proposal(drafter, sequence(9, 2, 3, pool=pool)) == ()

    def test_by_default_nothing_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        watched = calls(monkeypatch, TextPool, "watch")
        proposal(NgramDrafter(pool_tokens=1), sequence(1, 2, 3, 4, pool="team"))
        assert len(watched) == 1
        proposal(NgramDrafter(), sequence(1, 2, 3, 4, pool="team"))
        assert len(watched) == 1

    def test_where_the_pooled_text_ended_there_is_nothing_to_draft(self) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, 4, pool="team")
        proposal(drafter, first)
        first.reason = "stop"
        assert proposal(drafter, sequence(9, 3, 4, pool="team")) == ()

    def test_no_pool_is_asked_when_eight_tokens_of_the_text_itself_match(self) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(0, *range(10, 20), 4, pool="team")
        proposal(drafter, first)
        first.reason = "stop"
        for length, token in ((7, 4), (8, 5)):
            repeated = range(20 - length, 20)
            own = sequence(*repeated, 5, *range(10, 20), pool="team")
            assert proposal(drafter, own, 1) == (token,)

    def test_the_longer_of_the_pools_match_and_the_texts_own_counts(self) -> None:
        drafter, first = NgramDrafter(pool_tokens=90), sequence(1, 2, 3, 4, pool="team")
        proposal(drafter, first)
        first.reason = "stop"
        assert proposal(drafter, sequence(2, 3, 7, 1, 2, 3, pool="team"), 1) == (4,)
        assert proposal(drafter, sequence(2, 3, 7, 2, 3, pool="team"), 1) == (7,)

    def test_of_many_pools_the_one_longest_unused_is_dropped(self) -> None:
        drafter = NgramDrafter(pool_tokens=90)
        for pool in range(16):
            first = sequence(1, 2, 3, 4, pool=str(pool))
            proposal(drafter, first)
            first.reason = "stop"
        proposal(drafter, sequence(9, pool="0"))
        proposal(drafter, sequence(9, pool="one more"))
        assert proposal(drafter, sequence(9, 2, 3, pool="1")) == ()
        assert proposal(drafter, sequence(9, 2, 3, pool="0")) == (4,)
