"""Decoding one prompt in one way, and what that took. Knows the session and the clock; judges nothing."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mtplx.engine.errors import ContextLengthError
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.session import EngineSession, GenerationConfig
from mtplx.engine.types import Acceptance
from mtplx.server.bench.cells import Cell, in_turn
from mtplx.server.bench.prompts import Prompt

_NEVER = -100.0  # the bias of tokens that would end a text before its time


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as the model reads it."""

    id: str
    category: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What to measure: each prompt in each cell, `num_repeats` times, `num_tokens` of output each time."""

    prompts: Sequence[EncodedPrompt]
    cells: Sequence[Cell]
    num_tokens: int
    num_repeats: int = 1
    acceptance: Acceptance = "rejection"

    @property
    def num_runs(self) -> int:
        """The warm-up, a run of each cell, included."""
        return len(self.cells) * (1 + len(self.prompts) * self.num_repeats)


@dataclass(frozen=True)
class Run:
    """One prompt decoded once in one cell. Times are in seconds.

    `prefill_s` is the prompt's; `first_token_s` it and the first round; `decode_s` all rounds. Draft and verify times
    are sums over the rounds. `drafted_at[i]` and `accepted_at[i]` count the drafts that reached position i, and those
    of which the token there was accepted.
    """

    prompt: str
    category: str
    repeat: int
    cell: Cell
    num_prompt_tokens: int
    prefill_s: float
    first_token_s: float
    decode_s: float
    draft_s: float
    verify_s: float
    num_rounds: int
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str


def encode_prompt(model: LoadedModel, prompt: Prompt, num_tokens: int) -> EncodedPrompt:
    """Raises InvalidRequestError for a prompt that the model's template refuses, or that leaves no room for output."""
    tokenizer = model.tokenizer
    tokens = tokenizer.encode(tokenizer.render_chat(prompt.messages), add_special_tokens=False)
    if len(tokens) + num_tokens > model.context_length:
        raise ContextLengthError(
            f"prompt {prompt.id} has {len(tokens)} tokens, which with {num_tokens} of output is more than the model's "
            f"context of {model.context_length}",
            field="prompts",
        )
    return EncodedPrompt(prompt.id, prompt.category, tuple(tokens))


def measure(session: EngineSession, plan: Plan, on_run: Callable[[], None]) -> Iterator[list[Run]]:
    """A run of every cell, for each repeat of each prompt; `on_run` is told of every single one.

    Before them each cell decodes the first prompt, which is not counted.
    """
    for cell in plan.cells:
        measure_one(session, plan, plan.prompts[0], cell, 0)
        on_run()
    for repeat in range(plan.num_repeats):
        for index, prompt in enumerate(plan.prompts):
            runs = []
            for cell in in_turn(plan.cells, index + repeat):
                runs.append(measure_one(session, plan, prompt, cell, repeat))
                on_run()
            yield runs


def measure_one(session: EngineSession, plan: Plan, prompt: EncodedPrompt, cell: Cell, repeat: int) -> Run:
    """Decode `prompt` to the plan's length, the seed being the number of the repeat."""
    config = _config(session, plan, cell, repeat)
    started_s = time.perf_counter()
    session.begin(prompt.tokens, config)
    prefilled_s = time.perf_counter()
    emissions = [session.step()]
    first_s = time.perf_counter()
    while emissions[-1].reason is None:
        emissions.append(session.step())
    ended_s = time.perf_counter()
    records = [emission.record for emission in emissions]
    return Run(
        prompt=prompt.id,
        category=prompt.category,
        repeat=repeat,
        cell=cell,
        num_prompt_tokens=len(prompt.tokens),
        prefill_s=prefilled_s - started_s,
        first_token_s=first_s - started_s,
        decode_s=ended_s - prefilled_s,
        draft_s=sum(record.draft_s for record in records),
        verify_s=sum(record.verify_s for record in records),
        num_rounds=len(records),
        drafted_at=_reached([record.num_drafted for record in records]),
        accepted_at=_reached([record.num_accepted for record in records]),
        tokens=tuple(token for emission in emissions for token in emission.tokens),
        text="".join(emission.text for emission in emissions),
    )


def _config(session: EngineSession, plan: Plan, cell: Cell, seed: int) -> GenerationConfig:
    return replace(
        session.config,
        drafter=cell.drafter,
        speculative_depth=cell.depth,
        acceptance=plan.acceptance,
        max_tokens=plan.num_tokens,
        temperature=cell.temperature,
        logit_bias=dict.fromkeys(session.model.tokenizer.eos_token_ids, _NEVER),
        seed=seed,
    )


def _reached(lengths: Sequence[int]) -> tuple[int, ...]:
    """How many of the lengths go beyond each position, position 0 first."""
    return tuple(sum(length > position for length in lengths) for position in range(max(lengths, default=0)))
