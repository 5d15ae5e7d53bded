"""Steppers that do as a test says, in place of the scheduler or around it."""

from collections.abc import Sequence
from dataclasses import replace

from mtplx.configs.settings import Settings
from mtplx.engine.loop import Stepper
from mtplx.engine.types import Completion, Load, Request, SpeculationReport, SpeculationStats, Update
from mtplx.server.bridge import LoadedEngine, LoadEngine
from tests.server.engines import letter_engine


class ScriptedStepper:
    """Writes the same text for every request, a piece a step, and then gives it the same end."""

    def __init__(self, pieces: Sequence[str], completion: Completion, load: Load | None = None) -> None:
        self.speculation = SpeculationReport()
        self._pieces = pieces
        self._completion = completion
        self._load = load or Load()
        self._left: dict[str, list[str]] = {}

    @property
    def load(self) -> Load:
        return replace(self._load, num_running=len(self._left))

    def add(self, request: Request) -> None:
        self._left[request.id] = list(self._pieces)

    def abort(self, request_id: str) -> Sequence[Update]:
        return []

    def step(self) -> Sequence[Update]:
        updates = [
            Update(name, (pieces.pop(0),)) if pieces else Update(name, completion=self._completion)
            for name, pieces in self._left.items()
        ]
        for update in updates:
            if update.completion is not None:
                del self._left[update.request_id]
        return updates

    def close(self) -> None:
        pass


def completion(**fields: object) -> Completion:
    """An end like any other but for `fields`."""
    usual = Completion("stop", 3, 0, queue_time_s=0.0, speculation=SpeculationStats.none(0))
    return replace(usual, **fields)  # type: ignore[arg-type]


class WatchedStepper:
    """Another stepper, whose calls are noted, and how many requests each left."""

    def __init__(self, stepper: Stepper) -> None:
        self.calls: list[tuple[str, int]] = []
        self._stepper = stepper

    @property
    def load(self) -> Load:
        return self._stepper.load

    @property
    def speculation(self) -> SpeculationReport:
        return self._stepper.speculation

    def add(self, request: Request) -> None:
        self._stepper.add(request)
        self._note("add")

    def abort(self, request_id: str) -> Sequence[Update]:
        updates = self._stepper.abort(request_id)
        self._note("abort")
        return updates

    def step(self) -> Sequence[Update]:
        updates = self._stepper.step()
        self._note("step")
        return updates

    def close(self) -> None:
        self._stepper.close()

    def _note(self, call: str) -> None:
        self.calls.append((call, self.load.num_running + self.load.num_waiting))


class WatchedEngine:
    """The letters' engine, watched. To be given to `create_app`; `stepper` is there once it has been loaded."""

    stepper: WatchedStepper

    def __init__(self, pace_s: float) -> None:
        self._load = letter_engine(pace_s)

    def __call__(self, settings: Settings) -> LoadedEngine:
        engine = self._load(settings)
        self.stepper = WatchedStepper(engine.stepper)
        return replace(engine, stepper=self.stepper)


def engine_with(stepper: Stepper) -> LoadEngine:
    """The letters' engine with another stepper."""
    return lambda settings: replace(letter_engine()(settings), stepper=stepper)
