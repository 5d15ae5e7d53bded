"""Between engine thread and event loop: what a step brought goes out before the next one takes the processors."""

import time

import pytest

from mtplx.configs.settings import Settings
from mtplx.engine.types import Request, Update
from mtplx.server import bridge
from mtplx.server.bridge import AsyncEngine
from tests.server.steppers import ScriptedStepper, completion, engine_with

NUM_PIECES = 20
ENOUGH_S = 30.0


class SeenStepper(ScriptedStepper):
    """Notes before each step how many updates have been read. Begins when both requests are there."""

    def __init__(self) -> None:
        super().__init__(["x"] * NUM_PIECES, completion())
        self.num_read = 0
        self.read_before: list[int] = []

    def step(self) -> list[Update]:
        if not self.read_before and self.load.num_running < len(requests()):
            return []
        self.read_before.append(self.num_read)
        return list(super().step())


async def started(stepper: ScriptedStepper) -> AsyncEngine:
    engine = AsyncEngine(Settings(), engine_with(stepper))
    engine.start()
    while engine.status.state == "loading":
        time.sleep(0.01)
    return engine


def requests() -> list[Request]:
    return [Request(name, (3, 5), max_tokens=NUM_PIECES) for name in ("one", "two")]


async def test_a_step_begins_when_what_the_last_one_brought_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_SENDING_S", ENOUGH_S)
    stepper = SeenStepper()
    engine = await started(stepper)
    async for _ in engine.submit(requests(), cut_off=lambda: None):
        stepper.num_read += 1
    assert stepper.read_before == list(range(0, 2 * NUM_PIECES + 1, 2))
    engine.stop()
    await engine.join()


async def test_an_event_loop_that_is_busy_does_not_stop_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_SENDING_S", 0.001)
    stepper = SeenStepper()
    engine = await started(stepper)
    stream = engine.submit(requests(), cut_off=lambda: None)
    until_s = time.monotonic() + ENOUGH_S
    while len(stepper.read_before) <= NUM_PIECES and time.monotonic() < until_s:
        time.sleep(0.01)  # the event loop does nothing else meanwhile
    assert stepper.read_before == [0] * (NUM_PIECES + 1)
    assert len([update async for update in stream]) == 2 * (NUM_PIECES + 1)
    engine.stop()
    await engine.join()
