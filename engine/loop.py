"""The engine thread: loads the model, takes commands, steps the scheduler, hands over what happened.

One thread loads the model and alone touches MLX, whose streams belong to a thread. Knows threads and queues; knows no
asyncio, and of decoding only the four verbs of `Stepper`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from mtplx.engine.errors import EngineError, EngineUnavailableError, InvalidRequestError, OverloadedError
from mtplx.engine.types import Completion, Load, Request, SpeculationReport, SpeculationStats, Update

logger = logging.getLogger(__name__)

State = Literal["loading", "ok", "failed", "stopped"]


@dataclass(frozen=True)
class LoopStatus:
    """A snapshot, replaced whole by the engine thread; readable from any thread."""

    state: State = "loading"
    reason: str | None = None
    load: Load = field(default_factory=Load)


class Stepper(Protocol):
    """What the loop drives; `Scheduler` is the one that decodes."""

    @property
    def load(self) -> Load: ...

    @property
    def speculation(self) -> SpeculationReport:
        """May be asked from any thread."""
        ...

    def add(self, request: Request) -> None: ...

    def abort(self, request_id: str) -> Sequence[Update]: ...

    def step(self) -> Sequence[Update]: ...

    def close(self) -> None:
        """There will be no more steps."""
        ...


@dataclass
class _Progress:
    """What has been handed over of a request, so that its end reconciles with that even if the stepper is lost."""

    request: Request
    submitted_at_s: float  # monotonic
    num_output: int = 0
    speculation: SpeculationStats = field(init=False)

    def __post_init__(self) -> None:
        self.speculation = SpeculationStats.none(self.request.draft_depth)

    def count(self, update: Update) -> None:
        self.num_output += len(update.token_ids)
        if update.round is not None:
            self.speculation = self.speculation.after(update.round)

    def failed(self, error: EngineError) -> Update:
        """The end that `error` brings. How long the request waited for its turn is lost with the stepper."""
        completion = Completion(
            reason="error",
            num_prompt_tokens=len(self.request.prompt),
            num_output_tokens=self.num_output,
            queue_time_s=0.0,
            speculation=self.speculation,
            error=error,
        )
        return Update(self.request.id, completion=completion)


@dataclass(frozen=True)
class _Add:
    request: Request


@dataclass(frozen=True)
class _Abort:
    request_id: str


@dataclass(frozen=True)
class _Stop:
    """Fail what is still open `grace_s` seconds from now."""

    grace_s: float


class EngineLoop:
    """Runs a `Stepper` on a thread of its own.

    `load` builds it, on that thread. `deliver` receives what one step brought, on that thread too, once a step, and
    the next step waits for it. Every request that `submit` took ends with exactly one update that has a completion.
    """

    def __init__(
        self,
        load: Callable[[], Stepper],
        deliver: Callable[[Sequence[Update]], None],
        *,
        max_open: int,
    ) -> None:
        self._load = load
        self._deliver = deliver
        self._max_open = max_open
        self._commands: queue.SimpleQueue[_Add | _Abort | _Stop] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards _open and _accepting
        self._open: dict[str, _Progress] = {}
        self._accepting = True
        self._stepping: set[str] = set()  # the requests that the stepper has
        self._deadline: float | None = None
        self._mean_request_s = 1.0
        self._thread = threading.Thread(target=self._run, name="mtplx-engine", daemon=True)
        self.status = LoopStatus()

    # ---- called from any thread -------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def submit(self, *requests: Request) -> None:
        """Queue requests, all or none.

        Raises EngineUnavailableError unless the state is "ok", OverloadedError when more than `max_open` requests would
        be open.
        """
        with self._lock:
            self.require_ok()
            if len(self._open) + len(requests) > self._max_open:
                raise OverloadedError(
                    f"{len(self._open)} requests are open, and this server takes {self._max_open}; try again later",
                    retry_after_s=max(1.0, self._mean_request_s),
                )
            known = [request.id for request in requests if request.id in self._open]
            if known:
                raise InvalidRequestError(f"a request with the id {known[0]!r} is open already")
            now_s = time.monotonic()
            self._open |= {request.id: _Progress(request, now_s) for request in requests}
        for request in requests:
            self._commands.put(_Add(request))

    def abort(self, request_id: str) -> None:
        """End a request at the next step; nothing happens if it has ended already."""
        self._commands.put(_Abort(request_id))

    def stop(self, grace_s: float = 0.0) -> None:
        """Take no more requests; let open ones run for `grace_s` seconds, fail the rest, and end the thread."""
        with self._lock:
            self._accepting = False
        self._commands.put(_Stop(grace_s))

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; False when it still runs after `timeout_s`."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def require_ok(self) -> None:
        """Raise EngineUnavailableError, with the reason, unless requests are taken."""
        if not self._accepting or self.status.state != "ok":
            raise EngineUnavailableError(self._unavailable_reason())

    def _unavailable_reason(self) -> str:
        match self.status.state:
            case "loading":
                return "the model is still loading; try again shortly"
            case "failed":
                return f"the engine has failed: {self.status.reason}"
            case _:
                return "the server is shutting down"

    # ---- the engine thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            stepper = self._load()
        except Exception as error:
            self._fail("the model could not be loaded", error)
            return
        self._publish("ok", stepper)
        try:
            while not self._finished():
                self._step(stepper)
        except Exception as error:
            self._fail("the engine loop crashed", error)
            return
        self._shut_down(stepper)

    def _step(self, stepper: Stepper) -> None:
        updates: list[Update] = []
        for command in self._take_commands(idle=not self._stepping):
            match command:
                case _Add(request):
                    updates += self._add(stepper, request)
                case _Abort(request_id):
                    updates += stepper.abort(request_id)
                case _Stop(grace_s):
                    self._deadline = time.monotonic() + grace_s
        if self._stepping.difference(update.request_id for update in updates if update.completion is not None):
            updates += stepper.step()
        self._publish("ok", stepper)
        self._hand_over(updates)

    def _add(self, stepper: Stepper, request: Request) -> list[Update]:
        """Hand a request to the stepper; its end if that fails, which concerns nobody else."""
        try:
            stepper.add(request)
        except EngineError as error:
            return [self._open[request.id].failed(error)]
        except Exception as error:
            logger.error("request %s failed", request.id, exc_info=error)
            told = EngineError(f"an internal error ended request {request.id}; the server's log has the details")
            return [self._open[request.id].failed(told)]
        self._stepping.add(request.id)
        return []

    def _take_commands(self, *, idle: bool) -> list[_Add | _Abort | _Stop]:
        """All waiting commands; blocks for the first one when there is nothing else to do."""
        commands = []
        if idle and self._deadline is None:
            commands.append(self._commands.get())
        while not self._commands.empty():
            commands.append(self._commands.get())
        return commands

    def _finished(self) -> bool:
        if self._deadline is None:
            return False
        return not self._open or time.monotonic() >= self._deadline

    def _publish(self, state: State, stepper: Stepper) -> None:
        self.status = LoopStatus(state=state, load=stepper.load)

    def _hand_over(self, updates: Sequence[Update]) -> None:
        if not updates:
            return
        with self._lock:
            for update in updates:
                progress = self._open[update.request_id]
                progress.count(update)
                if update.completion is not None:
                    del self._open[update.request_id]
                    self._stepping.discard(update.request_id)
                    elapsed_s = time.monotonic() - progress.submitted_at_s
                    self._mean_request_s += 0.2 * (elapsed_s - self._mean_request_s)
        self._deliver(updates)

    def _shut_down(self, stepper: Stepper) -> None:
        """Fail the requests the grace period did not see end, with the counts they reached."""
        error = EngineUnavailableError("the server is shutting down")
        updates = [update for request_id in list(self._open) for update in stepper.abort(request_id)]
        self._hand_over([_as_failure(update, error) for update in updates])
        self._fail_open(error)
        try:
            stepper.close()
        except Exception:
            logger.exception("the engine did not close in order")
        self.status = LoopStatus(state="stopped")

    def _fail(self, what: str, error: Exception) -> None:
        logger.error("%s: %s", what, error, exc_info=None if isinstance(error, EngineError) else error)
        idle = replace(self.status.load, num_running=0, num_waiting=0, cache_bytes=0, reserved_bytes=0)
        self.status = LoopStatus("failed", reason=f"{what}: {error}", load=idle)
        self._fail_open(EngineUnavailableError(f"{what}: {error}"))

    def _fail_open(self, error: EngineError) -> None:
        with self._lock:
            self._accepting = False
            ends = [progress.failed(error) for progress in self._open.values()]
        self._hand_over(ends)


def _as_failure(update: Update, error: EngineError) -> Update:
    if update.completion is None:
        return update
    return replace(update, completion=replace(update.completion, reason="error", error=error))
