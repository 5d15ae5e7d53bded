"""Every request that the loop takes ends exactly once, whatever happens to the loop."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import EngineUnavailableError, InvalidRequestError, ModelLoadError, OverloadedError
from mtplx.engine.loop import EngineLoop, Stepper
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.scheduler import Scheduler, SchedulerLimits
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Load, Request, SamplingParams, Update
from tests.fakes import ByteTokenizer, TabularTarget

TIMEOUT_S = 20.0


class Receiver:
    """Collects updates, and lets a test wait for them."""

    def __init__(self) -> None:
        self.batches: list[list[Update]] = []
        self._changed = threading.Condition()

    def __call__(self, updates: Sequence[Update]) -> None:
        with self._changed:
            self.batches.append(list(updates))
            self._changed.notify_all()

    @property
    def updates(self) -> list[Update]:
        return [update for batch in self.batches for update in batch]

    @property
    def ended(self) -> dict[str, str]:
        return {update.request_id: update.completion.reason for update in self.updates if update.completion}

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT_S)


class Gate(TabularTarget):
    """Forwards only while it is open."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.open = threading.Event()

    def forward(self, batch):
        assert self.open.wait(TIMEOUT_S)
        return super().forward(batch)


def make_scheduler(target: TabularTarget | None = None) -> Scheduler:
    speculator = Speculator(target or TabularTarget(seed=1), {"ngram": NgramDrafter()}, ByteTokenizer())
    return Scheduler(
        speculator,
        SchedulerLimits(max_running=2, prefill_chunk=4, max_step_rows=32),
        CacheMemory(max_bytes=10_000, row_bytes=10),
        PrefixCache(0),
    )


def start(load: Callable[[], Stepper], max_open: int = 4) -> tuple[EngineLoop, Receiver]:
    receiver = Receiver()
    loop = EngineLoop(load, receiver, max_open=max_open)
    loop.start()
    return loop, receiver


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def request(name: str, max_tokens: int = 5) -> Request:
    return Request(name, (1, 2), max_tokens, SamplingParams(seed=1))


def test_requests_run_to_their_end() -> None:
    loop, receiver = start(make_scheduler)
    wait_until(lambda: loop.status.state == "ok")
    for name in "abc":
        loop.submit(request(name))
    receiver.wait_for(lambda: len(receiver.ended) == 3)
    assert set(receiver.ended.values()) == {"length"}
    assert loop.status.load.num_running == 0
    loop.stop()
    assert loop.join(TIMEOUT_S)
    assert loop.status.state == "stopped"


def test_the_model_is_loaded_and_run_on_one_thread_of_its_own() -> None:
    names = []

    class Watching(TabularTarget):
        def forward(self, batch):
            names.append(threading.current_thread().name)
            return super().forward(batch)

    def load() -> Scheduler:
        names.append(threading.current_thread().name)
        return make_scheduler(Watching(seed=1))

    loop, receiver = start(load)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a"))
    receiver.wait_for(lambda: bool(receiver.ended))
    loop.stop()
    assert set(names) == {"mtplx-engine"}


def test_nothing_is_taken_while_loading() -> None:
    may_load = threading.Event()

    def load() -> Scheduler:
        may_load.wait(TIMEOUT_S)
        return make_scheduler()

    loop, _ = start(load)
    assert loop.status.state == "loading"
    with pytest.raises(EngineUnavailableError, match="loading"):
        loop.submit(request("a"))
    may_load.set()
    wait_until(lambda: loop.status.state == "ok")
    loop.stop()


def test_a_failed_load_is_told_with_its_reason() -> None:
    def load() -> Scheduler:
        raise ModelLoadError("there is no such file")

    loop, _ = start(load)
    wait_until(lambda: loop.status.state == "failed")
    assert "there is no such file" in (loop.status.reason or "")
    with pytest.raises(EngineUnavailableError, match="no such file"):
        loop.submit(request("a"))
    assert loop.join(TIMEOUT_S)


def test_no_more_than_the_most_are_open_at_once() -> None:
    gate = Gate()
    loop, receiver = start(lambda: make_scheduler(gate), max_open=2)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a"))
    loop.submit(request("b"))
    with pytest.raises(OverloadedError) as overload:
        loop.submit(request("c"))
    assert overload.value.retry_after_s >= 1.0
    gate.open.set()
    receiver.wait_for(lambda: len(receiver.ended) == 2)
    loop.submit(request("c"))
    receiver.wait_for(lambda: len(receiver.ended) == 3)
    loop.stop()


def test_an_abort_takes_effect_at_the_next_step() -> None:
    gate = Gate()
    loop, receiver = start(lambda: make_scheduler(gate))
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a", max_tokens=90))
    loop.abort("a")
    loop.abort("a")
    loop.abort("never heard of")
    gate.open.set()
    receiver.wait_for(lambda: "a" in receiver.ended)
    assert receiver.ended == {"a": "abort"}
    assert len([update for update in receiver.updates if update.token_ids]) <= 2
    loop.stop()


def test_stopping_lets_open_requests_finish_within_the_grace_period() -> None:
    loop, receiver = start(make_scheduler)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a", max_tokens=50))
    loop.stop(grace_s=TIMEOUT_S)
    with pytest.raises(EngineUnavailableError, match="shutting down"):
        loop.submit(request("b"))
    assert loop.join(TIMEOUT_S)
    assert receiver.ended == {"a": "length"}


def test_stopping_again_shortens_the_grace_period() -> None:
    gate = Gate()
    loop, receiver = start(lambda: make_scheduler(gate))
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a", max_tokens=90))
    loop.stop(grace_s=TIMEOUT_S)
    loop.stop()
    gate.open.set()
    assert loop.join(TIMEOUT_S)
    assert receiver.ended == {"a": "error"}


def test_stopping_ends_even_a_request_that_the_stepper_has_not_taken() -> None:
    class Forgetful(Scheduler):
        def add(self, request: Request) -> None:
            pass

    scheduler = make_scheduler()
    scheduler.__class__ = Forgetful
    loop, receiver = start(lambda: scheduler)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a"))
    loop.stop()
    assert loop.join(TIMEOUT_S)
    assert receiver.ended == {"a": "error"}


def test_stopping_without_grace_fails_open_requests_with_what_they_reached() -> None:
    gate = Gate()
    loop, receiver = start(lambda: make_scheduler(gate))
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a", max_tokens=90))
    loop.stop()
    gate.open.set()
    assert loop.join(TIMEOUT_S)
    assert receiver.ended == {"a": "error"}
    [end] = [update.completion for update in receiver.updates if update.completion]
    assert isinstance(end.error, EngineUnavailableError)
    assert end.num_output_tokens == sum(len(update.token_ids) for update in receiver.updates)


def test_a_crash_reaches_every_open_request_and_the_status() -> None:
    class Crashing(Scheduler):
        def step(self):
            raise RuntimeError("the roof fell in")

    scheduler = make_scheduler()
    scheduler.__class__ = Crashing
    loop, receiver = start(lambda: scheduler)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a"))
    receiver.wait_for(lambda: bool(receiver.ended))
    assert receiver.ended == {"a": "error"}
    wait_until(lambda: loop.status.state == "failed")
    assert "the roof fell in" in (loop.status.reason or "")
    with pytest.raises(EngineUnavailableError, match="roof"):
        loop.submit(request("b"))


def test_what_was_counted_before_a_crash_still_counts_and_what_was_held_is_not() -> None:
    held = Load(num_running=1, cache_bytes=50, reserved_bytes=60, max_cache_bytes=70, num_prefix_queries=9)

    class Crashing(Scheduler):
        load = held

        def step(self):
            raise RuntimeError("the roof fell in")

    scheduler = make_scheduler()
    scheduler.__class__ = Crashing
    loop, _ = start(lambda: scheduler)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a"))
    wait_until(lambda: loop.status.state == "failed")
    assert loop.status.load == Load(max_cache_bytes=70, num_prefix_queries=9)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidRequestError("b needs 9 MB of 8"), "b needs 9 MB of 8"),
        (RuntimeError("a screw is loose"), "an internal error ended request b; the server's log has the details"),
    ],
)
def test_a_request_that_the_stepper_cannot_take_fails_alone(
    error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Choosy(Scheduler):
        def add(self, request: Request) -> None:
            if request.id == "b":
                raise error
            super().add(request)

    scheduler = make_scheduler()
    scheduler.__class__ = Choosy
    loop, receiver = start(lambda: scheduler)
    wait_until(lambda: loop.status.state == "ok")
    for name in "abc":
        loop.submit(request(name))
    receiver.wait_for(lambda: len(receiver.ended) == 3)
    assert receiver.ended == {"a": "length", "b": "error", "c": "length"}
    [failure] = [
        update.completion.error for update in receiver.updates if update.completion and update.completion.error
    ]
    assert str(failure) == told
    assert ("request b failed" in caplog.messages) == isinstance(error, RuntimeError)
    loop.stop()


def test_what_a_request_reached_before_a_crash_is_in_its_end() -> None:
    class CrashingLater(Scheduler):
        num_left = 9

        def step(self):
            self.num_left -= 1
            if self.num_left == 0:
                raise RuntimeError("the roof fell in")
            return super().step()

    scheduler = make_scheduler()
    scheduler.__class__ = CrashingLater
    loop, receiver = start(lambda: scheduler)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(replace(request("a", max_tokens=90), prompt=(1, 2) * 4, depth=3, drafter="ngram"))
    receiver.wait_for(lambda: bool(receiver.ended))
    [end] = [update.completion for update in receiver.updates if update.completion]
    rounds = [update.round for update in receiver.updates if update.round]
    assert end.num_output_tokens == sum(len(update.token_ids) for update in receiver.updates) > 0
    assert end.speculation.num_rounds == len(rounds) > 0
    assert end.speculation.num_drafted == sum(record.num_drafted for record in rounds) > 0
    assert end.speculation.num_accepted == sum(record.num_accepted for record in rounds)


def test_the_status_tells_the_load_as_each_step_left_it() -> None:
    loads = []
    loop = EngineLoop(make_scheduler, lambda updates: loads.append(loop.status.load), max_open=4)
    loop.start()
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a", max_tokens=3))
    wait_until(lambda: len(loads) == 3)
    assert [(load.num_running, load.cache_bytes) for load in loads] == [(1, 20), (1, 30), (0, 0)]
    loop.stop()


def test_a_step_brings_one_hand_over() -> None:
    loop, receiver = start(make_scheduler)
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a", max_tokens=7))
    receiver.wait_for(lambda: bool(receiver.ended))
    assert [len(batch) for batch in receiver.batches] == [1] * 7
    loop.stop()


def test_an_id_that_is_open_already_is_refused_and_harms_nobody() -> None:
    gate = Gate()
    loop, receiver = start(lambda: make_scheduler(gate))
    wait_until(lambda: loop.status.state == "ok")
    loop.submit(request("a"))
    with pytest.raises(InvalidRequestError, match="open already"):
        loop.submit(request("a"))
    gate.open.set()
    receiver.wait_for(lambda: bool(receiver.ended))
    assert receiver.ended == {"a": "length"}
    loop.stop()
