"""A step is one forward for all; failures stay with their request, and company changes no answer."""

import time
from itertools import count

import pytest

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import EngineError, NonFiniteLogitsError, TimedOutError
from mtplx.engine.models.target import Rows
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.scheduler import Scheduler, SchedulerLimits
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Logits, Request, SamplingParams, Update
from tests.fakes import ByteTokenizer, TabularTarget


def make_scheduler(
    target: TabularTarget | None = None,
    max_running: int = 4,
    prefill_chunk: int = 4,
    memory: CacheMemory = CacheMemory(max_bytes=10_000, row_bytes=10),  # noqa: B008 -- it is frozen
    queue_timeout_s: float | None = None,
) -> Scheduler:
    drafters = {"ngram": NgramDrafter(), "small": ModelDrafter("small", TabularTarget(seed=9))}
    speculator = Speculator(target or TabularTarget(seed=1), drafters, ByteTokenizer())
    limits = SchedulerLimits(max_running, prefill_chunk, max_step_rows=32, queue_timeout_s=queue_timeout_s)
    return Scheduler(speculator, limits, memory, PrefixCache(0))


def request(name: str, prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 6, **options: object) -> Request:
    return Request(name, prompt, max_tokens, **{"sampling": SamplingParams(seed=5), **options})


def run(scheduler: Scheduler) -> list[Update]:
    updates = []
    while scheduler.load.num_running or scheduler.load.num_waiting:
        updates += scheduler.step()
    return updates


def tokens_of(updates: list[Update], name: str) -> list[int]:
    return [token for update in updates if update.request_id == name for token in update.token_ids]


def completion_of(updates: list[Update], name: str):
    [completion] = [update.completion for update in updates if update.request_id == name and update.completion]
    return completion


VARIED = [
    request("plain", max_tokens=12),
    request("greedy", sampling=SamplingParams(temperature=0.0), depth=5, drafter="ngram", max_tokens=20),
    request("ngram", prompt=(1, 2, 1, 2, 1), depth=3, drafter="ngram", max_tokens=15),
    request("small", prompt=tuple(range(8)) * 3, depth=4, drafter="small", max_tokens=10),
    request("other choice", choice=1, depth=2, drafter="small"),
    request("penalties", sampling=SamplingParams(seed=6, frequency_penalty=1.0, top_p=0.9), depth=8, drafter="small"),
]


def test_a_seeded_answer_is_the_same_alone_and_in_company() -> None:
    alone = {}
    for each in VARIED:
        scheduler = make_scheduler()
        scheduler.add(each)
        alone[each.id] = tokens_of(run(scheduler), each.id)
    for order in (VARIED, VARIED[::-1]):
        together = make_scheduler(max_running=3, prefill_chunk=2)
        for each in order:
            together.add(each)
        updates = run(together)
        assert {each.id: tokens_of(updates, each.id) for each in order} == alone


def test_choices_of_one_seed_differ() -> None:
    scheduler = make_scheduler()
    for choice in range(3):
        scheduler.add(request(str(choice), choice=choice, max_tokens=20))
    updates = run(scheduler)
    assert len({tuple(tokens_of(updates, str(choice))) for choice in range(3)}) == 3


def test_running_requests_share_every_forward() -> None:
    target = TabularTarget(seed=1)
    scheduler = make_scheduler(target)
    for name in "abc":
        scheduler.add(request(name, prompt=(1,)))
    assert [update.request_id for update in run(scheduler)] == list("abc" * 6)
    assert target.num_forwards == 6


def test_requests_of_a_model_that_runs_them_one_by_one_take_turns() -> None:
    target = TabularTarget(seed=1)
    target.way = "sequential"
    scheduler = make_scheduler(target)
    for name in "abc":
        scheduler.add(request(name, prompt=(1,)))
    steps = []
    while scheduler.load.num_running or scheduler.load.num_waiting:
        steps.append([update.request_id for update in scheduler.step()])
    assert steps == [[name] for name in "abc" * 6]


def test_requests_join_and_leave_at_any_step() -> None:
    scheduler = make_scheduler()
    scheduler.add(request("early", prompt=(1,), max_tokens=3))
    assert names_of(scheduler.step()) == ["early"]
    scheduler.add(request("late", prompt=(1,), max_tokens=5))
    assert [names_of(scheduler.step()) for _ in range(4)] == [["early", "late"]] * 2 + [["late"]] * 2


def test_a_text_under_way_gets_its_token_in_every_step_while_a_long_prompt_comes_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = count()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.001 * next(ticks))  # all steps take the same
    scheduler = make_scheduler()
    scheduler.add(request("short", prompt=(1,), max_tokens=30))
    scheduler.step()
    scheduler.add(request("long", prompt=tuple(i % 8 for i in range(41)), max_tokens=1))
    rows = []
    while "long" not in names_of(updates := scheduler.step()):
        assert names_of(updates) == ["short"]
        rows.append(scheduler.load.num_step_rows - 1)
    assert sum(rows) == 40
    assert 0 < max(rows) <= 31  # what a step has room for


def test_prompts_fill_a_step_by_age() -> None:
    scheduler = make_scheduler(prefill_chunk=4)
    scheduler.add(request("first", prompt=(1, 2, 3, 4, 5, 6, 7)))
    scheduler.add(request("second", prompt=(1, 2, 3, 4, 5, 6, 7)))
    scheduler.step()
    assert scheduler.load.cache_bytes == 4 * 10  # all of the first's
    scheduler.step()
    assert scheduler.load.cache_bytes == 8 * 10  # the first's last two and two of the second's
    assert names_of(scheduler.step()) == ["first"]


def test_depths_that_requests_fix_are_kept_and_who_finds_no_room_comes_first_in_the_next_step() -> None:
    scheduler = make_scheduler()  # with 32 rows a step
    for name in "abc":
        scheduler.add(request(name, prompt=(1,), max_tokens=40, depth=12, drafter="ngram"))
    steps = []
    while scheduler.load.num_running or scheduler.load.num_waiting:
        steps.append(names_of(updates := scheduler.step()))
        assert scheduler.load.num_step_rows <= 32
        assert {update.round.depth for update in updates} <= {12, *range(12)}
    together = [names for names in steps if len(names) > 1]
    assert together[:3] == [["a", "b"], ["a", "c"], ["b", "c"]]


def names_of(updates: list[Update]) -> list[str]:
    return [update.request_id for update in updates]


def test_first_come_first_served_beyond_the_most_that_run() -> None:
    scheduler = make_scheduler(max_running=2)
    for name in "abcd":
        scheduler.add(request(name, prompt=(1,), max_tokens=3))
    scheduler.step()
    assert (scheduler.load.num_running, scheduler.load.num_waiting) == (2, 2)
    ended = [update.request_id for update in run(scheduler) if update.completion]
    assert ended == list("abcd")


def test_the_end_of_a_request_tells_what_ended_it() -> None:
    scheduler = make_scheduler()
    scheduler.add(request("a", max_tokens=50, stop_token_ids=(4,)))
    scheduler.add(request("b", max_tokens=2))
    updates = run(scheduler)
    assert (completion_of(updates, "a").reason, completion_of(updates, "a").stop_reason) == ("stop", 4)
    assert (completion_of(updates, "b").reason, completion_of(updates, "b").stop_reason) == ("length", None)


def test_the_load_tells_what_rows_take_and_what_is_set_aside() -> None:
    scheduler = make_scheduler()
    scheduler.add(request("a", prompt=(1, 2, 3, 4, 5, 6)))
    taken = []
    for _ in range(4):
        scheduler.step()
        taken.append(scheduler.load.cache_bytes)
    assert taken == [40, 50, 60, 70]
    load = scheduler.load
    assert (load.reserved_bytes, load.max_cache_bytes) == (180, 10_000)  # half as much again as twelve rows
    assert (load.num_step_rows, load.max_step_rows) == (1, 32)
    assert load.step_s > 0.0
    run(scheduler)
    assert scheduler.load.cache_bytes == scheduler.load.reserved_bytes == 0


def test_requests_wait_until_there_is_memory_for_all_they_may_grow_to() -> None:
    scheduler = make_scheduler(memory=CacheMemory(max_bytes=400, row_bytes=10))
    for name in "abc":
        scheduler.add(request(name, prompt=(1,) * 4, max_tokens=6))  # 150 bytes each
    scheduler.step()
    assert (scheduler.load.num_running, scheduler.load.num_waiting) == (2, 1)
    assert scheduler.load.reserved_bytes == 300
    updates = run(scheduler)
    assert {update.request_id for update in updates if update.completion} == set("abc")


def test_the_most_urgent_run_first_and_of_these_whoever_came_first() -> None:
    scheduler = make_scheduler(max_running=1)
    for name, priority in (("a", 1), ("b", 0), ("c", -3), ("d", 0)):
        scheduler.add(request(name, prompt=(1,), max_tokens=1, priority=priority))
    assert names_of(run(scheduler)) == ["c", "b", "d", "a"]


def test_requests_that_take_or_wait_too_long_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    scheduler = make_scheduler(max_running=1, queue_timeout_s=8.0)
    scheduler.add(request("runs", prompt=(1,), max_tokens=50, timeout_s=20.0))
    scheduler.add(request("waits", prompt=(1,)))
    scheduler.add(request("hurries", prompt=(1,), timeout_s=5.0))
    assert names_of(scheduler.step()) == ["runs"]
    now_s = 106.0
    failed = scheduler.step()
    assert names_of(failed) == ["hurries", "runs"]
    assert "still waiting for its turn after 5 seconds" in str(failed[0].completion.error)
    now_s = 109.0
    [failed, _] = scheduler.step()
    assert (failed.request_id, type(failed.completion.error)) == ("waits", TimedOutError)
    now_s = 121.0
    [failed] = scheduler.step()
    assert (failed.request_id, failed.completion.num_output_tokens) == ("runs", 3)
    assert "not done after 20 seconds" in str(failed.completion.error)


def test_an_aborted_request_is_gone_wherever_it_was() -> None:
    scheduler = make_scheduler(max_running=1)
    for name in "ab":
        scheduler.add(request(name, prompt=(1,)))
    scheduler.step()
    [running] = scheduler.abort("a")
    assert (running.completion.reason, running.completion.num_output_tokens) == ("abort", 1)
    [waiting] = scheduler.abort("b")
    assert (waiting.completion.reason, waiting.completion.num_output_tokens) == ("abort", 0)
    assert scheduler.abort("a") == []
    assert scheduler.step() == []
    assert scheduler.load.num_running == scheduler.load.num_waiting == 0


class Failing(TabularTarget):
    """Fails on sequences that begin with token 7."""

    def __init__(self, error: Exception) -> None:
        super().__init__(seed=1)
        self._error = error

    def forward(self, batch: list[Rows]) -> list[Logits]:
        if any((rows.cache.tokens or list(rows.tokens))[0] == 7 for rows in batch):
            raise self._error
        return super().forward(batch)


@pytest.mark.parametrize("error", [RuntimeError("secret detail"), NonFiniteLogitsError("not finite")])
def test_a_failure_ends_its_own_request_and_no_other(error: Exception) -> None:
    scheduler = make_scheduler(Failing(error))
    scheduler.add(request("good"))
    scheduler.add(request("bad", prompt=(7, 1)))
    updates = run(scheduler)
    assert completion_of(updates, "good").reason == "length"
    failed = completion_of(updates, "bad")
    assert failed.reason == "error"
    scheduler = make_scheduler()
    scheduler.add(request("good"))
    assert tokens_of(updates, "good") == tokens_of(run(scheduler), "good")  # it began again, to the same effect
    assert isinstance(failed.error, EngineError)
    assert "secret" not in str(failed.error)
    assert ("bad" in str(failed.error)) != isinstance(error, EngineError)  # an unknown failure is told by its id


def test_a_request_that_cannot_even_begin_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TabularTarget(seed=1)
    scheduler = make_scheduler(target)
    scheduler.add(request("bad"))
    with monkeypatch.context() as patched:
        patched.setattr(target, "new_cache", lambda: 1 / 0)
        [failed] = scheduler.step()
    assert (failed.request_id, failed.completion.reason) == ("bad", "error")
    scheduler.add(request("good"))
    assert completion_of(run(scheduler), "good").reason == "length"


def test_completions_add_up_with_the_rounds_told() -> None:
    scheduler = make_scheduler()
    for each in VARIED:
        scheduler.add(each)
    updates = run(scheduler)
    for each in VARIED:
        own = [update for update in updates if update.request_id == each.id]
        completion = completion_of(updates, each.id)
        assert completion.num_output_tokens == len(tokens_of(updates, each.id))
        assert completion.num_prompt_tokens == len(each.prompt)
        assert completion.queue_time_s >= 0.0
        records = [update.round for update in own]
        assert completion.speculation.num_rounds == len(records)
        assert completion.speculation.num_drafted == sum(record.num_drafted for record in records)
        assert completion.speculation.num_accepted == sum(record.num_accepted for record in records)
