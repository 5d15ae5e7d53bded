"""What a grammar forces is drafted whenever a request drafts at all, and its drafts are right."""

from dataclasses import replace

import pytest

from mtplx.engine.drafters.forced import ForcedDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import AUTO, FORCED, PLAIN, Draft, Request, RoundRecord, SamplingParams
from tests.engine.decoding import RULES, begin, decode, speculating, step, step_together
from tests.engine.grammars import Automaton
from tests.fakes import ByteTokenizer, TabularTarget

VOCAB = 8
# A 0 or a 1, then three tokens that are forced, again and again.
GRAMMAR = Automaton(VOCAB, {0: {0: 1, 1: 2}, 1: {2: 3}, 2: {3: 3}, 3: {4: 4}, 4: {5: 0}})
GREEDY = SamplingParams(0.0)
REQUEST = Request("r", (6, 7, 6, 7), 24, GREEDY, grammar=GRAMMAR)


@pytest.fixture
def speculator() -> Speculator:
    drafters = {FORCED: ForcedDrafter(), "ngram": NgramDrafter()}
    return Speculator(TabularTarget(VOCAB, seed=3), drafters, ByteTokenizer())


def records(speculator: Speculator, request: Request) -> list[RoundRecord]:
    """What each round of the text did."""
    sequence = begin(speculator, request)
    rounds = []
    while sequence.reason is None:
        rounds.append(step(speculator, sequence).record)
    return rounds


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=1)], ids=["greedy", "sampled"])
def test_every_forced_token_comes_by_a_draft_that_is_accepted(speculator: Speculator, sampling, rule) -> None:
    request = speculating(replace(REQUEST, sampling=sampling), FORCED, 3, rule)
    rounds = records(speculator, request)
    assert all(each.num_accepted == each.num_drafted for each in rounds)
    assert [each.num_drafted for each in rounds] == [0, 3, 3, 3, 3, 3, 2]  # each forced run brings the choice after it
    assert {each.drafter for each in rounds if each.num_drafted} == {FORCED}


@pytest.mark.parametrize("depth", [1, 3, 8, "auto"])
@pytest.mark.parametrize("drafter", ["ngram", AUTO])
def test_where_tokens_are_forced_no_other_drafter_is_asked(speculator: Speculator, drafter, depth) -> None:
    sequence = begin(speculator, speculating(REQUEST, drafter, depth))
    while sequence.reason is None:
        forced = sequence.history.grammar.forced()
        [draft] = speculator.draft([sequence])
        assert (draft.drafter == FORCED) == bool(forced and sequence.max_depth)
        if draft.drafter == FORCED:
            assert draft.tokens == forced[: sequence.max_depth]
            assert draft.distributions is None
        [verdict] = speculator.verify([sequence], [draft])
        speculator.commit(sequence, draft, verdict)


@pytest.mark.parametrize(("drafter", "depth"), [(PLAIN, 3), ("ngram", 0), (FORCED, 0)])
def test_a_request_that_does_not_draft_drafts_nothing_forced_either(speculator: Speculator, drafter, depth) -> None:
    assert {each.num_drafted for each in records(speculator, speculating(REQUEST, drafter, depth))} == {0}


def test_without_a_grammar_there_is_nothing_to_draft(speculator: Speculator) -> None:
    sequence = begin(speculator, speculating(replace(REQUEST, grammar=None), FORCED, 3))
    assert speculator.draft([sequence]) == [Draft()]
    assert ForcedDrafter().propose([sequence], [3]) == [Draft()]


@pytest.mark.parametrize("depth", [3, "auto"])
def test_beside_other_sequences_too(speculator: Speculator, depth) -> None:
    requests = [
        speculating(REQUEST, "ngram", depth),
        speculating(replace(REQUEST, id="free", grammar=None), "ngram", depth),
    ]
    alone = [decode(speculator, request)[0] for request in requests]
    sequences = [begin(speculator, request) for request in requests]
    drafters = set()
    while running := [sequence for sequence in sequences if sequence.reason is None]:
        drafters |= {emission.record.drafter for emission in step_together(speculator, running)}
    assert [sequence.tokens[4:] for sequence in sequences] == alone
    assert FORCED in drafters


def test_nothing_is_learnt_of_forced_drafts(speculator: Speculator) -> None:
    records(speculator, speculating(REQUEST, AUTO, "auto"))
    report = speculator.planner.report()
    assert FORCED not in report.draft_s
    assert FORCED not in report.survival
