"""The scheduler lends rows of earlier requests, and answers what it would have answered without."""

import pytest

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.scheduler import Scheduler, SchedulerLimits
from mtplx.engine.types import Completion, Request, SamplingParams
from tests.engine.kinds import TinyModels
from tests.kernels.availability import needs_native
from tests.tiny_models import EOS

KINDS = ("llama", "gemma3_text", "mamba2", pytest.param("native llama", marks=needs_native))
PROMPTS = [tuple(range(40, 75)), (*range(40, 60), *range(90, 110))]  # which begin alike
GREEDY = SamplingParams(temperature=0.0, logit_bias={EOS: -100.0})


def scheduler_of(
    models: TinyModels, kind: str, budget_bytes: int = 1 << 30, queue_timeout_s: float | None = None
) -> Scheduler:
    limits = SchedulerLimits(max_running=8, prefill_chunk=16, max_step_rows=64, queue_timeout_s=queue_timeout_s)
    memory = CacheMemory(max_bytes=1 << 30, row_bytes=100)
    return Scheduler(models.speculator(kind), limits, memory, PrefixCache(budget_bytes))


def answer(scheduler: Scheduler, *requests: Request) -> dict[str, tuple[list[int], Completion]]:
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    ends: dict[str, Completion] = {}
    for request in requests:
        scheduler.add(request)
    while scheduler.load.num_running or scheduler.load.num_waiting:
        for update in scheduler.step():
            tokens[update.request_id] += update.token_ids
            if update.completion is not None:
                ends[update.request_id] = update.completion
    return {name: (tokens[name], ends[name]) for name in tokens}


def request(prompt: tuple[int, ...], name: str = "a", **options: object) -> Request:
    return Request(name, prompt, 12, GREEDY, **options)


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_asked_again_is_known_but_for_its_last_token_and_answered_alike(
    models: TinyModels, kind: str, depth: int
) -> None:
    scheduler = scheduler_of(models, kind)
    first, second = (answer(scheduler, request(PROMPTS[0], depth=depth, drafter="ngram"))["a"] for _ in range(2))
    assert first[0] == second[0]
    assert (first[1].num_cached_tokens, second[1].num_cached_tokens) == (0, len(PROMPTS[0]) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_share_rows_and_steps_are_answered_as_alone(models: TinyModels, kind: str) -> None:
    alone = [answer(scheduler_of(models, kind, budget_bytes=0), request(prompt))["a"][0] for prompt in PROMPTS]
    scheduler = scheduler_of(models, kind)
    answer(scheduler, request(PROMPTS[0]))
    together = answer(
        scheduler,
        request(PROMPTS[0], "first"),
        request(PROMPTS[1], "second", depth=4, drafter="ngram"),
        request(PROMPTS[1], "third", depth=8, drafter="auto", auto_depth=True),
    )
    assert [together[name][0] for name in ("first", "second", "third")] == [alone[0], alone[1], alone[1]]
    load = scheduler.load
    assert load.prefix_bytes > 0
    assert load.num_prefix_hits >= len(PROMPTS[0]) - 1
    assert load.num_prefix_queries == 2 * len(PROMPTS[0]) + 2 * len(PROMPTS[1])


def test_tenants_do_not_share_rows(models: TinyModels) -> None:
    scheduler = scheduler_of(models, "llama")
    for salt, num_known in (("one", 0), ("other", 0), ("one", len(PROMPTS[0]) - 1)):
        assert answer(scheduler, request(PROMPTS[0], cache_salt=salt))["a"][1].num_cached_tokens == num_known


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_asked_several_times_at_once_is_forwarded_once(models: TinyModels, kind: str) -> None:
    scheduler = scheduler_of(models, kind)
    answers = answer(scheduler, *(request(PROMPTS[0], name) for name in "abc"), request(PROMPTS[1], "other"))
    known = [answers[name][1].num_cached_tokens for name in "abc"]
    assert known == [0, len(PROMPTS[0]) - 1, len(PROMPTS[0]) - 1]
    assert answers["a"][0] == answers["b"][0] == answers["c"][0]


def test_nobody_waits_for_rows_of_another_tenant_or_that_will_not_be_kept(models: TinyModels) -> None:
    for budget_bytes, salts in ((1 << 30, ("x", "y")), (0, ("x", "x"))):
        scheduler = scheduler_of(models, "llama", budget_bytes)
        for name, salt in zip("ab", salts, strict=True):
            scheduler.add(request(PROMPTS[0], name, cache_salt=salt))
        scheduler.step()
        assert scheduler.load.num_running == 2


def test_nobody_waits_for_rows_whose_prompt_is_to_be_scored(models: TinyModels) -> None:
    scheduler = scheduler_of(models, "llama")
    for name in "ab":
        scheduler.add(request(PROMPTS[0], name, scores_prompt=True))
    scheduler.step()
    assert scheduler.load.num_running == 2


def test_who_waits_for_rows_has_a_place(models: TinyModels) -> None:
    scheduler = scheduler_of(models, "llama", queue_timeout_s=1e-9)
    answers = answer(scheduler, *(request(PROMPTS[0], name) for name in "abc"))
    assert {end.reason for _, end in answers.values()} == {"length"}
