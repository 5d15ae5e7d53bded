"""What goes into the next forward: admits waiting requests, and has running ones share every step.

A step is one forward for all: the pending tokens of all texts under way, their drafts, and as many rows of new prompts
as these texts can wait for. A model that runs one sequence at a time takes turns instead. Knows fairness, memory and
time; knows nothing of how a round works.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.errors import EngineError, TimedOutError
from mtplx.engine.pace import PromptPace
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Emission, Speculator
from mtplx.engine.types import Completion, FinishReason, Load, Request, SpeculationReport, Update
from mtplx.engine.waiting import Waiting, WaitingLine

logger = logging.getLogger(__name__)

_LEAST_PROMPT_ROWS = 4  # of a step that are left to prompts, however many texts are under way


@dataclass(frozen=True)
class SchedulerLimits:
    """`max_running` sequences at a time, and `max_step_rows` rows a step; `prefill_chunk` rows of prompts in a step
    that has nothing else, and at most twice that many in one that keeps texts waiting.

    A request that waits longer than `queue_timeout_s` fails; None lets it wait.
    """

    max_running: int
    prefill_chunk: int
    max_step_rows: int
    queue_timeout_s: float | None = None


@dataclass(eq=False)
class _Running:
    sequence: DecodedSequence
    since_s: float  # monotonic, when it began to wait
    queue_time_s: float
    reserved_bytes: int
    num_cached: int
    last_step: int = 0  # in which it decoded a round
    is_suspect: bool = False  # shared a forward that failed, and has not got through one since

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
            num_cached_tokens=self.num_cached,
            stop_reason=self.sequence.stop_reason,
        )


@dataclass(frozen=True)
class _Turn:
    """Who takes part in a step: those that decode a round, and those whose prompt goes on by some rows."""

    decoding: Sequence[_Running]
    prefilling: Sequence[tuple[_Running, int]]

    @property
    def all(self) -> list[_Running]:
        return [*self.decoding, *(running for running, _ in self.prefilling)]


class Scheduler:
    """First come, first served within a priority, as far as places and memory go."""

    def __init__(
        self,
        speculator: Speculator,
        limits: SchedulerLimits,
        memory: CacheMemory,
        prefixes: PrefixCache,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """`on_close` is called when there will be no more steps, as `close` is."""
        self._speculator = speculator
        self._on_close = on_close
        self._limits = limits
        self._memory = memory
        self._prefixes = prefixes
        self._waiting = WaitingLine()
        self._running: list[_Running] = []  # in the order in which they began
        self._pace = PromptPace()
        self._paced: str | None = None  # the request whose prompt it is that comes in
        self._num_steps = 0
        self._step_rows = 0
        self._step_s = 0.0

    @property
    def load(self) -> Load:
        num_rows = sum(running.sequence.cache.num_committed for running in self._running)
        return Load(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            cache_bytes=num_rows * self._memory.row_bytes,
            reserved_bytes=self._reserved_bytes,
            max_cache_bytes=self._memory.max_bytes,
            prefix_bytes=self._prefixes.num_bytes,
            max_prefix_bytes=self._prefixes.budget_bytes,
            num_prefix_queries=self._prefixes.num_queried_tokens,
            num_prefix_hits=self._prefixes.num_hit_tokens,
            num_step_rows=self._step_rows,
            max_step_rows=self._limits.max_step_rows,
            step_s=self._step_s,
        )

    @property
    def speculation(self) -> SpeculationReport:
        """What has been learnt of speculation. May be asked from any thread."""
        return self._speculator.planner.report()

    @property
    def _reserved_bytes(self) -> int:
        return sum(running.reserved_bytes for running in self._running)

    def add(self, request: Request) -> None:
        """Queue a request, which must be within the engine's limits."""
        self._waiting.add(request)

    def abort(self, request_id: str) -> list[Update]:
        """Forget a request, wherever it is; its end, or nothing if it is not here."""
        updates = []
        for waiting in [each for each in self._waiting if each.request.id == request_id]:
            self._waiting.remove(waiting)
            updates.append(Update(request_id, completion=waiting.completion("abort")))
        for running in [each for each in self._running if each.request.id == request_id]:
            self._running.remove(running)
            updates.append(Update(request_id, completion=running.completion("abort")))
        return updates

    def close(self) -> None:
        if self._on_close is not None:
            self._on_close()

    def step(self) -> list[Update]:
        """One forward for all who can take part, and what came of it."""
        started_at_s = time.perf_counter()
        updates = [*self._admit(), *self._time_out(), *self._end_scored()]
        self._step_rows = 0
        if self._running:
            updates += self._run(self._turn())
        self._step_s = time.perf_counter() - started_at_s
        return updates

    # ---- who runs -----------------------------------------------------------------------------------------------

    def _time_out(self) -> list[Update]:
        """The ends of those that have waited or run for too long; to wait for rows is not to wait for a place."""
        now_s = time.monotonic()
        updates = []
        for waiting in list(self._waiting):
            for_place_s = self._limits.queue_timeout_s
            if for_place_s is not None and self._is_about_to_be_known(waiting.request):
                for_place_s = None
            limits = [limit for limit in (for_place_s, waiting.request.timeout_s) if limit is not None]
            if limits and now_s - waiting.since_s > min(limits):
                self._waiting.remove(waiting)
                error = TimedOutError(f"the request was still waiting for its turn after {min(limits):g} seconds")
                updates.append(_failure(waiting, error))
        for running in list(self._running):
            limit = running.request.timeout_s
            if limit is not None and now_s - running.since_s > limit:
                self._running.remove(running)
                updates.append(_failure(running, TimedOutError(f"the request was not done after {limit:g} seconds")))
        return updates

    def _admit(self) -> list[Update]:
        """Let waiting requests run while there is room; the ends of those that could not even begin."""
        failures = []
        while len(self._running) < self._limits.max_running:
            waiting = next((each for each in self._waiting if not self._is_about_to_be_known(each.request)), None)
            if waiting is None:
                break
            needed = self._memory.needed_by(waiting.request)
            if self._running and self._reserved_bytes + needed > self._memory.max_bytes:
                break
            self._waiting.remove(waiting)
            try:
                sequence = self._speculator.begin(waiting.request)
                num_cached = self._borrow(sequence)
            except Exception as error:
                failures.append(_failure(waiting, error))
            else:
                queue_time_s = time.monotonic() - waiting.since_s
                self._running.append(_Running(sequence, waiting.since_s, queue_time_s, needed, num_cached))
        return failures

    def _is_about_to_be_known(self, request: Request) -> bool:
        """Whether the same prompt is just being forwarded, whose rows the request will be lent if it waits for them."""
        is_lent = self._prefixes.budget_bytes > 0 and not request.scores_prompt
        return is_lent and any(
            running.sequence.num_to_prefill
            and len(running.request.prompt) == len(request.prompt)  # first, for many prompts begin alike
            and running.request.prompt == request.prompt
            and running.request.cache_salt == request.cache_salt
            for running in self._running
        )

    def _end_scored(self) -> list[Update]:
        """The ends of those that wanted their prompt scored and nothing more, and have it."""
        updates = []
        for running in list(self._running):
            sequence = running.sequence
            if not running.request.max_tokens and not sequence.num_to_prefill:
                self._running.remove(running)
                completion = running.completion("length")
                updates.append(Update(running.request.id, completion=completion, prompt_scores=sequence.prompt_scores))
        return updates

    def _turn(self) -> _Turn:
        suspects = [running for running in self._running if running.is_suspect]
        if suspects:
            return self._alone(suspects[0])
        if self._speculator.target.way == "sequential":
            self._running.append(self._running.pop(0))
            return self._alone(self._running[-1])
        prefilling = [running for running in self._running if running.sequence.num_to_prefill]
        room = self._limits.max_step_rows - (_LEAST_PROMPT_ROWS if prefilling else 0)
        decoding, num_rows = self._decoding(room)
        return _Turn(decoding, self._prompts(prefilling, len(decoding), self._limits.max_step_rows - num_rows))

    def _decoding(self, most_rows: int) -> tuple[list[_Running], int]:
        """The texts under way that go on in this step, and how many rows they take at least.

        A depth that a request fixes is kept, for a seeded text may depend on it. If all of these are too many, those
        whose last turn is longest ago come first.
        """
        self._num_steps += 1
        chosen: list[_Running] = []
        num_rows = 0
        able = [running for running in self._running if not running.sequence.num_to_prefill]
        for running in sorted(able, key=lambda each: (each.last_step, each.sequence.speculation.num_rounds)):
            needed = 1 if running.request.auto_depth else 1 + max(0, running.sequence.max_depth)
            if chosen and num_rows + needed > most_rows:
                break
            running.last_step = self._num_steps
            chosen.append(running)
            num_rows += needed
        return [running for running in able if running in chosen], num_rows

    def _alone(self, running: _Running) -> _Turn:
        num_rows = min(running.sequence.num_to_prefill, self._limits.prefill_chunk)
        return _Turn([], [(running, num_rows)]) if num_rows else _Turn([running], [])

    def _prompts(self, prefilling: Sequence[_Running], num_texts: int, room: int) -> list[tuple[_Running, int]]:
        """Whose prompts go on by how many rows beside that many texts under way, the oldest first."""
        if not prefilling:
            return []
        if self._paced != prefilling[0].request.id:
            self._paced = prefilling[0].request.id
            self._pace.begin()
        chunk, room = self._limits.prefill_chunk, max(1, room)
        room = self._pace.rows(num_texts, min(room, 2 * chunk)) if num_texts else min(room, chunk)
        prompts = []
        for running in prefilling:
            num_rows = min(running.sequence.num_to_prefill, room)
            if num_rows > 0:
                prompts.append((running, num_rows))
                room -= num_rows
        return prompts

    # ---- the step -----------------------------------------------------------------------------------------------

    def _run(self, turn: _Turn) -> list[Update]:
        sequences = [running.sequence for running in turn.decoding]
        prompts = [(running.sequence, num_rows) for running, num_rows in turn.prefilling]
        num_prompt_rows = sum(num_rows for _, num_rows in prompts)
        started_at_s = time.perf_counter()
        try:
            drafts = (
                self._speculator.draft(sequences, self._limits.max_step_rows - num_prompt_rows) if sequences else []
            )
            self._step_rows = sum(len(draft) + 1 for draft in drafts) + num_prompt_rows
            verdicts = self._speculator.verify(sequences, drafts, prompts)
        except Exception as error:
            return self._recover(turn.all, error)
        self._pace.observe(len(sequences), num_prompt_rows, time.perf_counter() - started_at_s)
        updates = []
        for running, _ in turn.prefilling:
            if running.sequence.error is not None:
                updates.append(self._end(running, running.sequence.error))
            elif not running.sequence.num_to_prefill:
                self._bank(running.sequence)
        for running, draft, verdict in zip(turn.decoding, drafts, verdicts, strict=True):
            try:
                emission = self._speculator.commit(running.sequence, draft, verdict)
            except Exception as error:
                updates.append(self._end(running, error))
                continue
            running.is_suspect = False
            completion = None
            if emission.reason is not None:
                completion = running.completion(emission.reason)
                self._running.remove(running)
                self._bank(running.sequence)
            updates.append(_news(running, emission, completion))
        return updates

    def _recover(self, all_running: Iterable[_Running], error: Exception) -> list[Update]:
        """After a forward that failed: whoever was alone in it is at fault; several begin again, one at a time."""
        suspects = list(all_running)
        if len(suspects) == 1:
            return [self._end(suspects[0], error)]
        logger.warning("a forward of %d requests failed; each is tried alone", len(suspects), exc_info=error)
        for running in suspects:
            running.is_suspect = True
            self._speculator.start_over(running.sequence)
        return []

    def _end(self, running: _Running, error: Exception) -> Update:
        self._running.remove(running)
        return _failure(running, error)

    def _borrow(self, sequence: DecodedSequence) -> int:
        """Lend the sequence rows of earlier requests; how many. If that fails, it is prefilled like any other.

        A prompt that is to be scored is forwarded whole: rows that are lent have no logits.
        """
        if sequence.request.scores_prompt:
            return 0
        try:
            return self._prefixes.borrow(sequence.tokens, sequence.cache, sequence.request.cache_salt)
        except Exception:
            logger.exception("rows of earlier requests cannot be lent to request %s", sequence.request.id)
            self._speculator.start_over(sequence)
            return 0

    def _bank(self, sequence: DecodedSequence) -> None:
        """Keep the sequence's rows for later requests. That this fails is nothing to the request."""
        try:
            self._prefixes.bank(sequence.tokens, sequence.cache, sequence.request.cache_salt)
        except Exception:
            logger.exception("rows of request %s cannot be kept for later ones", sequence.request.id)


def _news(running: _Running, emission: Emission, completion: Completion | None) -> Update:
    is_first = running.sequence.num_output == len(emission.tokens)
    return Update(
        running.request.id,
        emission.pieces,
        emission.tokens,
        emission.record,
        completion,
        emission.scores,
        running.sequence.prompt_scores if is_first else (),
    )


def _failure(entry: Waiting | _Running, error: Exception) -> Update:
    """The end of a request that itself failed; the others go on."""
    request_id = entry.request.id
    if not isinstance(error, EngineError):
        logger.error("request %s failed", request_id, exc_info=error)
        error = EngineError(f"an internal error ended request {request_id}; the server's log has the details")
    return Update(request_id, completion=replace(entry.completion("error"), error=error.with_traceback(None)))
