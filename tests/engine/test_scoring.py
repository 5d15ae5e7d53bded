"""Scores are the target's own: they depend on no depth, drafter, rule or sampling parameter, and on nothing before."""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from scipy.special import log_softmax

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import NonFiniteLogitsError
from mtplx.engine.models.target import Rows
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.scheduler import Scheduler, SchedulerLimits
from mtplx.engine.scoring import score_token
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Logits, Request, SamplingParams, TokenScore, Update
from tests.engine.decoding import RULES, decode_scored, speculating
from tests.engine.kinds import TinyModels
from tests.fakes import ByteTokenizer, TabularTarget
from tests.tiny_models import EOS

PROMPT = (40, 41, 42, 43, 50, 40, 41, 42, 43, 51, 40, 41)  # repeats, so that n-grams match
# Under the coupled rule a seed fixes the text, so that its scores can be compared.
SAMPLED = SamplingParams(0.8, 0.9, repetition_penalty=1.1, frequency_penalty=0.2, logit_bias={EOS: -100.0}, seed=3)
REQUEST = Request("r", PROMPT, 16, SAMPLED, num_logprobs=3, acceptance="coupled")


def scored_by_definition(logits: np.ndarray, tokens: Sequence[int], num_top: int) -> list[TokenScore]:
    """Of `tokens` [T] by logits [T, V], with everything sorted."""
    scores = []
    for row, token in zip(log_softmax(logits.astype(np.float64), axis=-1), tokens, strict=True):
        top = sorted(enumerate(row.tolist()), key=lambda each: (-each[1], each[0]))[:num_top]
        scores.append(TokenScore(token, row[token], tuple(top)))
    return scores


def assert_close(scores: Sequence[TokenScore], expected: Sequence[TokenScore], error: float = 1e-4) -> None:
    assert [score.token for score in scores] == [score.token for score in expected]
    for ours, theirs in zip(scores, expected, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=error)
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        assert [each for _, each in ours.top] == pytest.approx([each for _, each in theirs.top], abs=error)


def tabular(target: TabularTarget) -> Speculator:
    return Speculator(target, {"ngram": NgramDrafter()}, ByteTokenizer())


def make_scheduler(speculator: Speculator, chunk: int = 5, prefix_bytes: int = 0) -> Scheduler:
    limits = SchedulerLimits(max_running=4, prefill_chunk=chunk, max_step_rows=32)
    return Scheduler(speculator, limits, CacheMemory(10**9, 1), PrefixCache(prefix_bytes))


def run(scheduler: Scheduler, *requests: Request) -> list[Update]:
    for request in requests:
        scheduler.add(request)
    updates = []
    while scheduler.load.num_running or scheduler.load.num_waiting:
        updates += scheduler.step()
    return updates


# ---- one token ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_top", [0, 1, 5, 20, 50])
def test_a_score_is_the_log_softmax_and_the_likeliest_are_in_order(num_top: int) -> None:
    logits = np.round(np.random.default_rng(0).normal(0, 2, (12, 20)), 1).astype(np.float32)  # with equals
    tokens = range(12)
    ours = [score_token(row, token, num_top) for row, token in zip(logits, tokens, strict=True)]
    assert_close(ours, scored_by_definition(logits, tokens, num_top), 1e-12)


def test_of_equally_likely_tokens_the_lowest_come_first() -> None:
    score = score_token(np.array([1.0, 2.0, 2.0, 2.0, 0.0], dtype=np.float32), 4, 2)
    assert [token for token, _ in score.top] == [1, 2]


def test_logits_far_apart_overflow_nothing() -> None:
    score = score_token(np.array([3e4, -3e4], dtype=np.float32), 1, 2)
    assert score == TokenScore(1, -6e4, ((0, 0.0), (1, -6e4)))


# ---- the output -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "mamba2"])
def test_scores_are_those_of_a_plain_forward_and_the_same_bits_however_tokens_were_drafted(
    models: TinyModels, kind: str
) -> None:
    speculator = models.speculator(kind)
    tokens, plain = decode_scored(speculator, REQUEST)
    logits = np.array(models[kind].model(mx.array([*PROMPT, *tokens])[None])[0].astype(mx.float32))
    assert_close(plain, scored_by_definition(logits[len(PROMPT) - 1 : -1], tokens, 3))
    for drafter, depth in (("ngram", 3), ("model", 8), ("self", "auto")):
        again, scores = decode_scored(speculator, speculating(REQUEST, drafter, depth, "coupled"))
        assert again == tokens
        if speculator.target.way == "rows":
            assert scores == plain, (drafter, depth)
        else:
            assert_close(scores, plain)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_rule_has_the_scores_that_follow_from_the_text(rule: str, temperature: float) -> None:
    target = TabularTarget(seed=1)
    params = replace(SAMPLED, temperature=temperature, logit_bias={2: 3.0})
    request = Request("r", (1, 2, 1, 2), 40, params, depth=4, drafter="ngram", acceptance=rule, num_logprobs=2)
    tokens, scores = decode_scored(tabular(target), request)
    text = [*request.prompt, *tokens]
    logits = np.array([target.logits(text[:end]) for end in range(len(request.prompt), len(text))])
    assert_close(scores, scored_by_definition(logits, tokens, 2), 1e-12)


def test_nobody_is_scored_who_does_not_ask() -> None:
    updates = run(make_scheduler(tabular(TabularTarget())), Request("plain", (1, 2, 3), 5), Request("r", (1, 2, 3), 5))
    assert all(update.scores == update.prompt_scores == () for update in updates)


# ---- the prompt -----------------------------------------------------------------------------------------------------

LONG = (1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 5, 1)


def prompt_scores_by_definition(target: TabularTarget, prompt: Sequence[int], num_top: int) -> list[TokenScore]:
    logits = np.array([target.logits(prompt[:end]) for end in range(1, len(prompt))])
    return scored_by_definition(logits, prompt[1:], num_top)


@pytest.mark.parametrize("chunk", [1, 5, 64])
@pytest.mark.parametrize("max_tokens", [0, 1, 6])
def test_a_prompt_is_scored_in_chunks_beside_others_and_told_once(max_tokens: int, chunk: int) -> None:
    target = TabularTarget(seed=1)
    request = Request("scored", LONG, max_tokens, num_logprobs=2, scores_prompt=True)
    other = Request("other", (3, 1), 9)
    updates = [
        each for each in run(make_scheduler(tabular(target), chunk), other, request) if each.request_id == "scored"
    ]
    assert_close(updates[0].prompt_scores, prompt_scores_by_definition(target, LONG, 2), 1e-12)
    assert all(update.prompt_scores == () for update in updates[1:])
    end = updates[-1].completion
    assert end is not None
    assert (end.reason, end.num_output_tokens) == ("length", max_tokens)


def test_scoring_alone_ends_without_a_round_even_where_there_is_nothing_to_score() -> None:
    for prompt in ((5,), (5, 6)):
        target = TabularTarget()
        [update] = run(make_scheduler(tabular(target)), Request("r", prompt, 0, scores_prompt=True))
        assert (len(update.prompt_scores), update.round, update.token_ids) == (len(prompt) - 1, None, ())
        assert target.num_forwards == len(prompt) - 1


def test_a_prompt_whose_rows_are_known_is_scored_all_the_same(models: TinyModels) -> None:
    scheduler = make_scheduler(models.speculator("llama"), prefix_bytes=10**8)
    request = Request("r", PROMPT, 0, scores_prompt=True)
    [first], [again] = run(scheduler, request), run(scheduler, request)
    [lent] = [each.completion for each in run(scheduler, Request("lent", PROMPT, 1)) if each.completion]
    assert again.prompt_scores == first.prompt_scores
    assert len(first.prompt_scores) == len(PROMPT) - 1
    assert lent.num_cached_tokens == len(PROMPT) - 1  # what was forwarded to be scored is kept for others


class FailingOnce(TabularTarget):
    """Its first forward of two texts under way fails."""

    has_failed = False

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        if not self.has_failed and sum(rows.cache.num_committed > 0 for rows in batch) == 2:
            self.has_failed = True
            raise RuntimeError("out of memory")
        return super().forward(batch)


def test_a_forward_that_fails_between_chunks_scores_no_token_twice() -> None:
    target = FailingOnce(seed=1)
    updates = run(
        make_scheduler(tabular(target)), *(Request(name, LONG, 2, num_logprobs=2, scores_prompt=True) for name in "ab")
    )
    assert target.has_failed
    for name in "ab":
        first, *rest = [update for update in updates if update.request_id == name]
        assert_close(first.prompt_scores, prompt_scores_by_definition(target, LONG, 2), 1e-12)
        assert all(update.prompt_scores == () for update in rest)
        assert sum(len(update.scores) for update in (first, *rest)) == 2


def test_a_prompt_that_gives_no_numbers_fails_and_nobody_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    target = TabularTarget()
    usual = target.logits
    target.logits = lambda context: usual(context) * (np.nan if context[-1] == 7 else 1.0)
    scheduler = make_scheduler(tabular(target))
    updates = run(
        scheduler, Request("bad", (1, 7, 2), 0, scores_prompt=True), Request("good", (1, 2), 0, scores_prompt=True)
    )
    ends = {update.request_id: update.completion for update in updates if update.completion}
    assert isinstance(ends["bad"].error, NonFiniteLogitsError)
    assert ends["good"].reason == "length"
    assert "each is tried alone" not in caplog.text


@pytest.mark.parametrize("kind", ["llama", "mamba2"])
def test_scoring_a_text_gives_the_scores_it_was_written_with(models: TinyModels, kind: str) -> None:
    tokens, written = decode_scored(models.speculator(kind), speculating(REQUEST, "ngram", 3, "coupled"))
    request = Request("r", (*PROMPT, *tokens), 0, num_logprobs=3, scores_prompt=True)
    [update] = run(make_scheduler(models.speculator(kind)), request)
    assert_close(update.prompt_scores[-len(tokens) :], written)
