"""Penalties, bias, cuts and grammar advance token by token along a draft, under every acceptance rule.

Drafts are judged in the middle of a text. Laws are enumerated; where one seed means one text, texts are compared.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from mtplx.engine.drafters.base import Drafter
from mtplx.engine.drafters.forced import ForcedDrafter
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import EngineError
from mtplx.engine.randomness import Purpose, RandomKey
from mtplx.engine.sampling import Scores, TokenHistory, adjust, distribution, most_likely
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Speculator, judge
from mtplx.engine.types import Acceptance, Distribution, Draft, Logits, Request, SamplingParams, Verdict
from tests.engine.decoding import RULES, begin, decode
from tests.engine.enumeration import Model, Uniform, Walk, gumbel, largest_error, output_law
from tests.engine.grammars import Automaton
from tests.fakes import ByteTokenizer, TabularTarget

VOCAB = 4
PROMPT = (0, 1, 2, 0, 1)
SAID = (1, 3)
DEPTH = 2
TARGET, OTHER = TabularTarget(VOCAB, seed=1), TabularTarget(VOCAB, seed=2)
# After a 3 comes a 2 or a 0, never twice the same token, and after a 0 nothing but a 1.
GRAMMAR = Automaton(VOCAB, {0: {1: 1, 2: 2, 3: 3}, 1: {0: 4, 2: 2, 3: 3}, 2: {1: 1, 3: 3}, 3: {0: 4, 2: 2}, 4: {1: 1}})
PROCESSORS = {
    "repetition penalty": SamplingParams(repetition_penalty=1.8),
    "presence penalty": SamplingParams(presence_penalty=1.1),
    "frequency penalty": SamplingParams(frequency_penalty=0.9),
    "bias": SamplingParams(logit_bias={3: 0.8, 1: -0.5, 0: -100.0}),
    "min-p": SamplingParams(min_p=0.3, temperature=0.8),
    "all": SamplingParams(
        temperature=0.9,
        top_p=0.9,
        top_k=3,
        min_p=0.05,
        repetition_penalty=1.4,
        presence_penalty=0.7,
        frequency_penalty=0.6,
        logit_bias={3: 0.8, 1: -0.5},
    ),
}
with_processors = pytest.mark.parametrize("params", PROCESSORS.values(), ids=PROCESSORS)
with_grammar = pytest.mark.parametrize("grammar", [None, GRAMMAR], ids=["free", "grammar"])


def model(table: TabularTarget, params: SamplingParams, grammar: Automaton | None) -> Model:
    """The distribution after SAID and a context, from the definition: a history counted from the start."""
    return cache(lambda context: distribution(scores(table, params, grammar, context), params))


def scores(table: TabularTarget, params: SamplingParams, grammar: Automaton | None, context: tuple[int, ...]) -> Scores:
    history = TokenHistory(PROMPT, grammar)
    for token in (*SAID, *context):
        history.push(token)
    return adjust(table.logits((*PROMPT, *SAID, *context)), params, history)


@dataclass(frozen=True)
class ScriptedKey:
    """Gives the numbers it is told to."""

    accept: Uniform
    emit: Uniform

    def uniform(self, position: int, purpose: Purpose, round_start: int = 0) -> float:
        return {Purpose.ACCEPT: self.accept, Purpose.EMIT: self.emit}[purpose](position - len(SAID))


def sequence_after_said(request: Request) -> DecodedSequence:
    sequence = begin(Speculator(TARGET, {}, ByteTokenizer()), request)
    for token in SAID:
        sequence.append(token)
    return sequence


def judged(sequence: DecodedSequence, draft: Draft) -> Verdict:
    return judge(sequence, draft, target_logits(draft.tokens))


@cache
def target_logits(tokens: tuple[int, ...]) -> Logits:
    """Logits [K + 1, V] after SAID and each of `tokens` [K]."""
    return np.array([TARGET.logits((*PROMPT, *SAID, *tokens[:i])) for i in range(len(tokens) + 1)])


def judging(request: Request) -> Walk:
    """`judge` as a rule over numbers."""
    sequence = sequence_after_said(request)

    def walk(target: object, draft: Draft, accept: Uniform, emit: Uniform) -> Verdict:
        sequence.key = ScriptedKey(accept, emit)
        return judged(sequence, draft)

    return walk


@pytest.mark.parametrize("ignored", [False, True], ids=["drafter follows", "drafter ignores"])
@pytest.mark.parametrize("rule", ["rejection", "block"])
@with_grammar
@with_processors
def test_drafts_leave_the_law(
    params: SamplingParams, grammar: Automaton | None, rule: Acceptance, ignored: bool
) -> None:
    """Whether the drafter follows the processors or not, in which case it may draft what the grammar forbids."""
    drafter = model(OTHER, SamplingParams(), None) if ignored else model(OTHER, params, grammar)
    request = Request("law", PROMPT, 100, params, acceptance=rule, grammar=grammar)
    target = model(TARGET, params, grammar)
    assert largest_error(output_law(judging(request), target, drafter, DEPTH), target) < 1e-9


@pytest.mark.parametrize("rule", ["rejection", "block"])
@with_grammar
@with_processors
def test_copied_drafts_leave_the_law(params: SamplingParams, grammar: Automaton | None, rule: Acceptance) -> None:
    request = Request("law", PROMPT, 100, params, acceptance=rule, grammar=grammar)
    target, drafter = model(TARGET, params, grammar), model(OTHER, SamplingParams(), None)
    law = output_law(judging(request), target, drafter, DEPTH, as_one_hot=True)
    assert largest_error(law, target) < 1e-9


# After SAID a 0 is forced, then anything may come.
FORCING = Automaton(VOCAB, {0: {1: 1}, 1: {3: 2}, 2: {0: 3}, 3: dict.fromkeys(range(VOCAB), 3)})


@pytest.mark.parametrize("rule", ["rejection", "block"])
@with_processors
def test_forced_drafts_leave_the_law_and_are_accepted(params: SamplingParams, rule: Acceptance) -> None:
    request = Request("law", PROMPT, 100, params, acceptance=rule, grammar=FORCING)
    [draft] = ForcedDrafter().propose([sequence_after_said(request)], [DEPTH])
    assert draft == Draft((0,))
    assert judged(sequence_after_said(request), draft).num_accepted == 1
    target = model(TARGET, params, FORCING)
    law = output_law(judging(request), target, lambda context: np.eye(VOCAB)[0], len(draft), as_one_hot=True)
    assert largest_error(law, target) < 1e-9


@with_grammar
@with_processors
def test_under_shared_noise_every_draft_gives_the_text_of_plain_decoding(
    params: SamplingParams, grammar: Automaton | None
) -> None:
    target = model(TARGET, params, grammar)
    for seed in range(8):
        plain: tuple[int, ...] = ()
        for position in range(len(SAID), len(SAID) + DEPTH + 1):
            p = np.maximum(target(plain), 1e-300)
            plain += (int(np.argmax(np.log(p) + gumbel(RandomKey(seed).noise(position, VOCAB)))),)
        request = Request("r", PROMPT, 100, replace(params, seed=seed), acceptance="coupled", grammar=grammar)
        assert_every_draft_gives(plain, request)


@with_grammar
@with_processors
def test_every_draft_gives_the_greedy_text_of_plain_decoding(params: SamplingParams, grammar: Automaton | None) -> None:
    greedy = replace(params, temperature=0.0)
    plain: tuple[int, ...] = ()
    for _ in range(DEPTH + 1):
        plain += (most_likely(scores(TARGET, greedy, grammar, plain)),)
    for rule in RULES:
        assert_every_draft_gives(plain, Request("r", PROMPT, 100, greedy, acceptance=rule, grammar=grammar))


def assert_every_draft_gives(plain: tuple[int, ...], request: Request) -> None:
    sequence = sequence_after_said(request)
    for tokens in itertools.product(range(VOCAB), repeat=DEPTH):
        verdict = judged(sequence, Draft(tokens))
        common = next((i for i in range(DEPTH) if tokens[i] != plain[i]), DEPTH)
        assert verdict == Verdict(common, plain[common]), tokens


END = 2


def held_open(context: tuple[int, ...]) -> Distribution:
    """The distribution after SAID and a context where END may not be among the first DEPTH tokens that follow SAID."""
    weights = np.exp(TARGET.logits((*PROMPT, *SAID, *context)).astype(np.float64))
    if len(context) < DEPTH:
        weights[END] = 0.0
    probabilities: Distribution = weights / weights.sum()
    return probabilities


NOT_YET = Request("r", PROMPT, 100, stop_token_ids=(END,), min_tokens=len(SAID) + DEPTH)


@pytest.mark.parametrize("ignored", [False, True], ids=["drafter follows", "drafter ignores"])
@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_no_end_comes_before_its_time_and_the_law_is_left_otherwise(rule: Acceptance, ignored: bool) -> None:
    drafter = model(OTHER, SamplingParams(), None) if ignored else held_open
    law = output_law(judging(replace(NOT_YET, acceptance=rule)), held_open, drafter, DEPTH)
    assert largest_error(law, held_open) < 1e-6  # the cut works in float32
    assert any(text[DEPTH] == END for text, probability in law.items() if probability > 0.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_end_comes_before_its_time_where_one_seed_means_one_text(temperature: float) -> None:
    for seed in range(8):
        plain: tuple[int, ...] = ()
        for position in range(len(SAID), len(SAID) + DEPTH + 1):
            noise = temperature * gumbel(RandomKey(seed).noise(position, VOCAB))
            plain += (int(np.argmax(np.log(np.maximum(held_open(plain), 1e-300)) + noise)),)
        params = SamplingParams(temperature, seed=seed)
        assert_every_draft_gives(plain, replace(NOT_YET, sampling=params, acceptance="coupled"))


def test_a_grammar_that_has_come_to_its_end_may_end_before_the_time() -> None:
    ended = TokenHistory(PROMPT, Automaton(VOCAB, {0: {END: 0}}), frozenset({END}), min_tokens=5)
    assert distribution(adjust(TARGET.logits(PROMPT), SamplingParams(), ended), SamplingParams())[END] == 1.0


@with_grammar
@with_processors
def test_a_model_draws_drafts_from_its_distribution_after_the_processors(
    params: SamplingParams, grammar: Automaton | None
) -> None:
    drafter = ModelDrafter("other", OTHER)
    q = model(OTHER, params, grammar)
    for seed in range(10):
        request = Request("r", PROMPT, 100, replace(params, seed=seed), depth=3, drafter="other", grammar=grammar)
        [draft] = drafter.propose([sequence_after_said(request)], [3])
        assert len(draft) == 3
        for position, token in enumerate(draft.tokens):
            expected: Distribution = q(draft.tokens[:position])
            np.testing.assert_array_equal(draft.distributions[position], expected)
            assert expected[token] > 0.0


@pytest.mark.parametrize("drafter", [NgramDrafter(), ModelDrafter("other", OTHER)], ids=lambda drafter: drafter.name)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_no_text_breaks_its_grammar(rule: Acceptance, temperature: float, drafter: Drafter) -> None:
    speculator = Speculator(TARGET, {drafter.name: drafter}, ByteTokenizer())
    for seed in range(20):
        params = SamplingParams(temperature, seed=seed)
        request = Request("r", PROMPT, 30, params, (), 4, drafter.name, acceptance=rule, grammar=GRAMMAR)
        tokens, sequence = decode(speculator, request)
        grammar = GRAMMAR
        for token in tokens:
            grammar = grammar.after(token)  # raises for a forbidden one
        assert sequence.history.grammar == grammar
        assert sequence.speculation.num_drafted > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_a_grammar_that_allows_no_token_is_an_error_that_says_so(rule: Acceptance, temperature: float) -> None:
    dead_end = Automaton(VOCAB, {0: {1: 1}, 1: {}})
    request = Request("r", PROMPT, 5, SamplingParams(temperature), acceptance=rule, grammar=dead_end)
    with pytest.raises(EngineError, match="the grammar allows no token"):
        decode(Speculator(TARGET, {}, ByteTokenizer()), request)
