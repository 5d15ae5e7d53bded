"""Whose turn it is: admits waiting requests and interleaves the rounds of running ones.

A step is one round, or one chunk of one prompt, so that nobody waits longer than that for a turn or for an abort to
take effect. Knows fairness and time; knows nothing of how a round works.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass, replace

from mtplx.engine.errors import EngineError
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Completion, FinishReason, Load, Request, SpeculationReport, SpeculationStats, Update

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Waiting:
    request: Request
    since: float  # monotonic seconds

    def completion(self, reason: FinishReason) -> Completion:
        """The end of a request that never ran."""
        return Completion(
            reason=reason,
            num_prompt_tokens=len(self.request.prompt),
            num_output_tokens=0,
            queue_time_s=time.monotonic() - self.since,
            speculation=SpeculationStats.none(self.request.draft_depth),
        )


@dataclass(frozen=True)
class _Running:
    sequence: DecodedSequence
    queue_time_s: float

    @property
    def request(self) -> Request:
        return self.sequence.request

    def completion(self, reason: FinishReason) -> Completion:
        return Completion(
            reason=reason,
            num_prompt_tokens=len(self.request.prompt),
            num_output_tokens=self.sequence.num_output,
            queue_time_s=self.queue_time_s,
            speculation=self.sequence.speculation,
        )


class Scheduler:
    """First come, first served for at most `max_running` sequences, which then take turns.

    `prefill_chunk` is the most rows of a prompt that one step forwards; `max_rows` what one sequence may grow to.
    """

    def __init__(self, speculator: Speculator, *, max_running: int, prefill_chunk: int, max_rows: int) -> None:
        self._speculator = speculator
        self._max_running = max_running
        self._prefill_chunk = prefill_chunk
        self._waiting: deque[_Waiting] = deque()
        self._running: deque[_Running] = deque()  # the next turn is the leftmost's

    @property
    def load(self) -> Load:
        return Load(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
        )

    @property
    def speculation(self) -> SpeculationReport:
        """What has been learnt of speculation. May be asked from any thread."""
        return self._speculator.planner.report()

    def add(self, request: Request) -> None:
        """Queue a request, which must be within the engine's limits."""
        self._waiting.append(_Waiting(request, time.monotonic()))

    def abort(self, request_id: str) -> list[Update]:
        """Forget a request, wherever it is; its end, or nothing if it is not here."""
        entries: list[_Waiting | _Running] = [*self._waiting, *self._running]
        ended = [entry for entry in entries if entry.request.id == request_id]
        self._waiting = deque(entry for entry in self._waiting if entry not in ended)
        self._running = deque(entry for entry in self._running if entry not in ended)
        return [Update(request_id, completion=entry.completion("abort")) for entry in ended]

    def step(self) -> list[Update]:
        """One turn of the sequence that has waited longest for one."""
        updates = self._admit()
        if not self._running:
            return updates
        running = self._running.popleft()
        try:
            update = self._turn(running)
        except Exception as error:
            update = _failure(running, error)
        if update is None or update.completion is None:
            self._running.append(running)
        return updates if update is None else [*updates, update]

    def _admit(self) -> list[Update]:
        """Let waiting requests run while there is room; the ends of those that could not even begin."""
        failures = []
        while self._waiting and len(self._running) < self._max_running:
            waiting = self._waiting.popleft()
            try:
                sequence = self._speculator.begin(waiting.request)
            except Exception as error:
                failures.append(_failure(waiting, error))
            else:
                self._running.append(_Running(sequence, time.monotonic() - waiting.since))
        return failures

    def _turn(self, running: _Running) -> Update | None:
        """A chunk of the prompt, which brings no news, or a round."""
        sequence = running.sequence
        if sequence.num_to_prefill:
            self._speculator.prefill(sequence, min(sequence.num_to_prefill, self._prefill_chunk))
            return None
        [draft] = self._speculator.draft([sequence])
        [verdict] = self._speculator.verify([sequence], [draft])
        emission = self._speculator.commit(sequence, draft, verdict)
        completion = None if emission.reason is None else running.completion(emission.reason)
        return Update(running.request.id, emission.text, emission.tokens, emission.record, completion)


def _failure(entry: _Waiting | _Running, error: Exception) -> Update:
    """The end of a request that itself failed; the others go on."""
    request_id = entry.request.id
    if not isinstance(error, EngineError):
        logger.error("request %s failed", request_id, exc_info=error)
        error = EngineError(f"an internal error ended request {request_id}; the server's log has the details")
    return Update(request_id, completion=replace(entry.completion("error"), error=error.with_traceback(None)))
