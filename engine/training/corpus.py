"""Has the model write the texts that its head will learn from, many at a time, and keeps their hidden states.

A text depends on the seed and its number alone, wherever kernels give a row the same bits in any company: neither who
is written beside it nor where a run was interrupted changes it. Knows how texts come about; knows no training.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mtplx.engine.assembly import machine_memory_bytes
from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.errors import EngineError
from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.running import row_bytes
from mtplx.engine.models.target import Target
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.scheduler import Scheduler, SchedulerLimits
from mtplx.engine.sequence import Sequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.text.tokenizer import Tokenizer
from mtplx.engine.training.begun import Begun, begin, begun_as
from mtplx.engine.training.jobs import Answer, Job, Jobs, Message
from mtplx.engine.training.repeats import before_circles
from mtplx.engine.training.states import HiddenStates, StateFile, computed_states, kept_states
from mtplx.engine.training.texts import Text, TextFile
from mtplx.engine.types import Request, SamplingParams

_NUM_RUNNING = 16  # texts in a step
_NUM_STARTED = 24  # so that whoever ends has a successor waiting
_STEP_ROWS = 128
_ANSWER_TEMPERATURES = (0.0, 0.7)  # in turn
_MESSAGE_TOP_P = 0.9  # at temperature 1: small models lose the thread in the tail of their distributions
_LEAST_WRITTEN = 4  # tokens; less teaches nothing
_MOST_LEFT_OUT = 500  # texts, one after the other
_MEMORY_SHARE = 4  # of the machine's memory, for rows

LEFT_OUT = Text((), 0)


@dataclass(frozen=True)
class CorpusPlan:
    """Write until there are `num_tokens` in all, or no more jobs. Answers have at most `answer_tokens`."""

    num_tokens: int
    answer_tokens: int
    seed: int


class CorpusWriter:
    """Goes on where the files end. `on_text` is told of each text that joins them, in order."""

    def __init__(
        self,
        loaded: LoadedModel,
        target: Target,
        plan: CorpusPlan,
        texts: TextFile,
        states: StateFile,
        on_text: Callable[[Text], None],
    ) -> None:
        self._plan = plan
        self._target = target
        self._context_length = loaded.context_length
        self._texts = texts
        self._states = states
        self._on_text = on_text
        self._speculator = _KeepingSpeculator(target, loaded.tokenizer)
        self._seen = {text.tokens[: text.num_given] for text in texts.texts if text.num_given > 1}
        self._openings: dict[tuple[int, ...], Begun | None] = {}
        self._jobs: dict[int, Job] = {}
        self._written: dict[int, tuple[Text, HiddenStates | None]] = {}

    def write(self, jobs: Jobs) -> None:
        """Raises EngineError if the model's logits are no numbers, or if none of many texts was of any use."""
        self._catch_up()
        scheduler = Scheduler(
            self._speculator,
            SchedulerLimits(max_running=_NUM_RUNNING, prefill_chunk=_STEP_ROWS // 2, max_step_rows=_STEP_ROWS),
            CacheMemory(machine_memory_bytes() // _MEMORY_SHARE, row_bytes(self._target)),
            PrefixCache(budget_bytes=0),
        )
        index = len(self._texts.texts)
        while self._texts.num_tokens < self._plan.num_tokens:
            while len(self._jobs) < _NUM_STARTED and (job := jobs(index)) is not None:
                self._start(scheduler, index, job)
                index += 1
            if not self._jobs and not self._written:
                return
            for update in scheduler.step() if self._jobs else ():
                if update.completion is not None:
                    if update.completion.error is not None:
                        raise update.completion.error
                    self._advance(scheduler, update.request_id)
            self._keep_in_order()

    def _catch_up(self) -> None:
        """Compute the states of texts that were kept without, as far as there is room."""
        for text in self._texts.texts[self._states.num_texts :]:
            if not self._states.append(computed_states(self._target, text)):
                return

    def _start(self, scheduler: Scheduler, index: int, job: Job) -> None:
        match job:
            case Message(tokens, most_tokens):
                self._jobs[index] = job
                if tokens not in self._openings:
                    self._openings[tokens] = begin(self._target, tokens)
                sampling = SamplingParams(top_p=_MESSAGE_TOP_P, seed=self._plan.seed)
                request = Request(f"message {index}", tokens, most_tokens, sampling, choice=2 * index)
                self._add(scheduler, request, self._openings[tokens])
            case Answer(prompt):
                self._ask(scheduler, index, prompt)
            case Text():
                self._written[index] = job, None

    def _add(self, scheduler: Scheduler, request: Request, begun: Begun | None) -> None:
        self._speculator.begun[request.id] = begun
        scheduler.add(request)

    def _ask(
        self, scheduler: Scheduler, index: int, prompt: tuple[int, ...] | None, begun: Begun | None = None
    ) -> None:
        num_tokens = 0 if prompt is None else min(self._plan.answer_tokens, self._context_length - len(prompt))
        if prompt is None or num_tokens < _LEAST_WRITTEN:
            self._jobs.pop(index, None)
            self._written[index] = LEFT_OUT, None
            return
        self._jobs[index] = Answer(prompt)
        temperature = _ANSWER_TEMPERATURES[index % len(_ANSWER_TEMPERATURES)]
        sampling = SamplingParams(temperature=temperature, seed=self._plan.seed)
        self._add(scheduler, Request(f"answer {index}", prompt, num_tokens, sampling, choice=2 * index + 1), begun)

    def _advance(self, scheduler: Scheduler, request_id: str) -> None:
        """What follows on a request that has ended."""
        index = int(request_id.split()[1])
        sequence = self._speculator.sequences.pop(request_id)
        match self._jobs.pop(index):
            case Message(prompt=prompt):
                written = sequence.tokens[len(sequence.request.prompt) :]
                goes_in_circles = before_circles(written) < len(written)
                begun = begun_as(sequence.tokens, sequence.cache)
                self._ask(scheduler, index, None if goes_in_circles else prompt(written), begun)
            case _:
                self._written[index] = _answered(sequence)

    def _keep_in_order(self) -> None:
        while (index := len(self._texts.texts)) in self._written:
            if self._texts.num_tokens >= self._plan.num_tokens:
                return
            text, states = self._written.pop(index)
            given = text.tokens[: text.num_given]
            if text.num_written < _LEAST_WRITTEN or given in self._seen:
                text, states = LEFT_OUT, None
            elif text.num_given > 1:
                self._seen.add(given)
            if self._states.num_texts == index:
                self._states.append(computed_states(self._target, text) if states is None else states)
            self._texts.append([text])
            self._on_text(text)
            if not any(text.tokens for text in self._texts.texts[-_MOST_LEFT_OUT:]) and index >= _MOST_LEFT_OUT:
                raise EngineError(
                    f"none of the last {_MOST_LEFT_OUT} texts was of any use: empty, or one had before; give texts "
                    "with --data"
                )


class _KeepingSpeculator(Speculator):
    """Remembers the sequences it began, and has them keep the hidden states of all rows. `begun` has, by request, what
    is lent to it."""

    def __init__(self, target: Target, tokenizer: Tokenizer) -> None:
        super().__init__(target, {}, tokenizer)
        self.sequences: dict[str, Sequence] = {}
        self.begun: dict[str, Begun | None] = {}

    def begin(self, request: Request) -> Sequence:
        sequence = super().begin(request)
        hidden = sequence.cache.hidden = HiddenRows(len(request.prompt) + request.max_tokens)
        if begun := self.begun.pop(request.id):
            begun.lend(request.prompt, sequence.cache, hidden)
        self.sequences[request.id] = sequence
        return sequence


def _answered(sequence: Sequence) -> tuple[Text, HiddenStates | None]:
    num_given = len(sequence.request.prompt)
    num_written = before_circles(sequence.tokens[num_given:])
    text = Text(tuple(sequence.tokens[: num_given + num_written]), num_given)
    return text, kept_states(sequence.cache, text.num_rows)
