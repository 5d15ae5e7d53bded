"""Turns are fair, failures stay with their request, and company changes no answer."""

import pytest

from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import EngineError, NonFiniteLogitsError
from mtplx.engine.models.target import Rows
from mtplx.engine.scheduler import Scheduler
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Logits, Request, SamplingParams, Update
from tests.fakes import ByteTokenizer, TabularTarget


def make_scheduler(target: TabularTarget | None = None, max_running: int = 4, prefill_chunk: int = 4) -> Scheduler:
    drafters = {"ngram": NgramDrafter(), "small": ModelDrafter("small", TabularTarget(seed=9))}
    speculator = Speculator(target or TabularTarget(seed=1), drafters, ByteTokenizer())
    return Scheduler(speculator, max_running=max_running, prefill_chunk=prefill_chunk, max_rows=100)


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


def test_running_requests_take_turns() -> None:
    scheduler = make_scheduler()
    for name in "abc":
        scheduler.add(request(name, prompt=(1,)))
    assert [update.request_id for update in run(scheduler)] == list("abc" * 6)


def test_a_long_prompt_comes_in_by_chunks_between_the_rounds_of_others() -> None:
    scheduler = make_scheduler()
    scheduler.add(request("short", prompt=(1,), max_tokens=30))
    scheduler.add(request("long", prompt=tuple(i % 8 for i in range(41)), max_tokens=1))
    names = [update.request_id for update in run(scheduler)]
    assert names.index("long") == 11  # ten chunks of four rows, and after each a round of the other


def test_first_come_first_served_beyond_the_most_that_run() -> None:
    scheduler = make_scheduler(max_running=2)
    for name in "abcd":
        scheduler.add(request(name, prompt=(1,), max_tokens=3))
    scheduler.step()
    assert (scheduler.load.num_running, scheduler.load.num_waiting) == (2, 2)
    ended = [update.request_id for update in run(scheduler) if update.completion]
    assert ended == list("abcd")


def test_the_load_counts_committed_rows() -> None:
    scheduler = make_scheduler()
    scheduler.add(request("a", prompt=(1, 2, 3, 4, 5, 6)))
    assert scheduler.load.max_cache_rows == 400
    rows = []
    for _ in range(4):
        scheduler.step()
        rows.append(scheduler.load.num_cache_rows)
    assert rows == [4, 5, 6, 7]
    run(scheduler)
    assert scheduler.load.num_cache_rows == 0


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
