"""The plain data that passes between the parts of the engine, and between engine and server.

Knows shapes and invariants of requests, drafts, verdicts and results. Knows no model, no text, no clock.
Everything here is immutable, and what crosses to the server holds only ints, floats, strings and errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Literal, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from mtplx.engine.errors import EngineError, InvalidRequestError

Distribution: TypeAlias = npt.NDArray[np.float64]  # [V], sums to 1
Logits: TypeAlias = npt.NDArray[np.float32]  # [V], or [T, V] where said so
HostStates: TypeAlias = npt.NDArray[np.float32]  # hidden states [n, D], in host memory

FinishReason = Literal["stop", "length", "abort", "error"]

Acceptance = Literal["rejection", "block", "coupled"]

PLAIN = "none"  # the drafter's name that asks for no drafts
HEAD = "head"  # the drafter on the target's hidden states
SELF = "self"  # the drafter that is a lighter copy of the target
MOST_HIDDEN_ROWS = 32  # of a sequence, the latest, that it begins with; what is farther back tells it hardly anything
FORCED = "grammar"  # the drafter of tokens that a request's grammar forces
AUTO: Literal["auto"] = "auto"  # the one that leaves it to the engine who drafts

Depth: TypeAlias = int | Literal["auto"]

_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.1, 10),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_SEED_RANGE = range(-(2**63), 2**63)


@dataclass(frozen=True)
class SamplingParams:
    """How a token is chosen from logits. The defaults change nothing: temperature 1, no cuts, no penalties.

    temperature 0 is greedy: the most likely token after penalties and bias, the lowest id among equals.
    top_k 0, top_p 1 and min_p 0 switch the respective cut off; top_p 0 keeps the likeliest token alone. A repetition
    penalty of 1 does nothing. Raises InvalidRequestError, which names the field, for a value out of its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        # Every comparison with NaN is false, so it is in no range. Values are not repeated: they may be endless.
        for name, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(self, name) <= highest:
                raise InvalidRequestError(f"{name} must be a number from {lowest} to {highest}", field=name)
        if self.top_k < 0:
            raise InvalidRequestError("top_k must be at least 1, or 0 for no cut", field="top_k")
        if self.seed is not None and self.seed not in _SEED_RANGE:
            raise InvalidRequestError("seed must be a whole number of at most 64 bits, sign included", field="seed")
        if not all(-100 <= bias <= 100 for bias in self.logit_bias.values()):
            raise InvalidRequestError("logit_bias must have numbers from -100 to 100", field="logit_bias")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @cached_property
    def biases(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The tokens of `logit_bias`, and the bias of each."""
        return np.fromiter(self.logit_bias.keys(), np.int64), np.fromiter(self.logit_bias.values(), np.float64)

    @property
    def has_penalty(self) -> bool:
        return bool(self.repetition_penalty != 1.0 or self.presence_penalty or self.frequency_penalty)

    @property
    def changes_logits(self) -> bool:
        """Whether there is a penalty or a bias."""
        return self.has_penalty or bool(self.logit_bias)


class Grammar(Protocol):
    """Which tokens may come next. A value: `after` gives another one, so that rolling back is to forget it."""

    def allowed(self) -> npt.NDArray[np.bool_]:
        """[V]; at least one is True, the end-of-text tokens where the text may end."""
        ...

    def forced(self) -> tuple[int, ...]:
        """The tokens that will most likely follow, for the text that they spell must; none where that is unknown."""
        ...

    def after(self, token: int) -> Self:
        """The grammar once `token`, which was allowed, has been emitted."""
        ...


@dataclass(frozen=True)
class Request:
    """One choice to be decoded. `prompt` holds at least one token; `depth` 0 or drafter "none" is plain decoding.

    With `auto_depth` the engine chooses the depth of each round, up to `depth`. `prediction` is text that the output
    may resemble; `pool` names the shared store of texts to copy from, if any. `acceptance` is the rule by which draft
    tokens become output, all of which are exact. Of the requests that wait, those of the lowest `priority` come first.
    Rows are shared only among requests of one `cache_salt`. `timeout_s` is how long the request may take, its wait
    included.

    End-of-text tokens end the text unless `ignore_eos`, and so do `stop_token_ids`; before `min_tokens` of output these
    have probability 0, and no stop string counts. With `num_logprobs` every output token is scored, beside that many of
    the likeliest; with `scores_prompt` so are the tokens of the prompt but the first, and then alone `max_tokens` may
    be 0.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    depth: int = 0
    drafter: str = PLAIN
    choice: int = 0
    auto_depth: bool = False
    acceptance: Acceptance = "rejection"
    prediction: tuple[int, ...] = ()
    pool: str | None = None
    grammar: Grammar | None = None
    priority: int = 0
    cache_salt: str = ""
    timeout_s: float | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    num_logprobs: int | None = None
    scores_prompt: bool = False

    @property
    def draft_depth(self) -> int:
        """The most tokens that a round may draft: 0 where there is no drafter."""
        return 0 if self.drafter == PLAIN else self.depth

    @property
    def needs_same_drafts(self) -> bool:
        """Whether its seed fixes the text only if the same is drafted each time."""
        return self.sampling.seed is not None and not self.sampling.greedy and self.acceptance != "coupled"


def usual_acceptance(sampling: SamplingParams, *, is_planned: bool) -> Acceptance:
    """The rule of a request that names none, `is_planned` if the engine chooses its drafter or depth.

    The engine chooses by measured times. Under the coupled rule alone a seed fixes the text all the same.
    """
    return "coupled" if is_planned and sampling.seed is not None else "rejection"


@dataclass(frozen=True)
class Draft:
    """K proposed tokens, with the distribution each was drawn from; `distributions` None means one-hot.

    `failed` says that the draft is empty because the drafter raised. `drafter` is who was asked, `depth` for how many
    tokens, and `seconds` what all drafting for the round took. `num_taken_back` tokens more were made, and held not to
    be worth verifying.
    """

    tokens: tuple[int, ...] = ()
    distributions: Sequence[Distribution] | None = None
    failed: bool = False
    drafter: str = PLAIN
    depth: int = 0
    seconds: float = field(default=0.0, compare=False)
    num_taken_back: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class TokenScore:
    """How likely the target held a token to be, whatever the request did to its logits before it chose.

    `logprob` is the natural logarithm of the token's probability. `top` has the likeliest tokens and theirs, in falling
    order, the lowest id first among equals; `token` itself is among them only if it is one of these.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the target made of a draft: `num_accepted` draft tokens, then one recovered or bonus token.

    `scores` are those of all these tokens if the request wants any. `seconds` is what forward and judging took, those
    of other sequences in the same forward included.
    """

    num_accepted: int
    token: int
    scores: tuple[TokenScore, ...] = ()
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class RoundRecord:
    """What one round did for one sequence, after stops and limits cut the run: the unit that metrics count.

    `drafter` is the one that drafted, "none" if none was asked. `num_accepted` counts the draft tokens that are part
    of the output. The times are of the stages, in seconds; a stage shared with other sequences counts whole.
    """

    drafter: str
    num_drafted: int
    num_accepted: int
    draft_failed: bool = False
    depth: int = 0  # tokens that were asked for
    draft_s: float = field(default=0.0, compare=False)
    verify_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class SpeculationStats:
    """Sums over the rounds of a request.

    `accepted_histogram[n]` is the number of drafts of which exactly n tokens were accepted; rounds without a draft
    are not in it.
    """

    depth: int
    num_rounds: int
    num_drafts: int
    num_drafted: int
    num_accepted: int
    accepted_histogram: tuple[int, ...]

    @classmethod
    def none(cls, depth: int) -> "SpeculationStats":
        """Of a request that saw no round."""
        return cls(depth, 0, 0, 0, 0, (0,) * (depth + 1))

    @classmethod
    def sum(cls, all_stats: Sequence["SpeculationStats"]) -> "SpeculationStats":
        """Of several requests together, at least one."""
        histograms = (stats.accepted_histogram for stats in all_stats)
        return cls(
            depth=max(stats.depth for stats in all_stats),
            num_rounds=sum(stats.num_rounds for stats in all_stats),
            num_drafts=sum(stats.num_drafts for stats in all_stats),
            num_drafted=sum(stats.num_drafted for stats in all_stats),
            num_accepted=sum(stats.num_accepted for stats in all_stats),
            accepted_histogram=tuple(map(sum, zip_longest(*histograms, fillvalue=0))),
        )

    def after(self, record: RoundRecord) -> "SpeculationStats":
        """These sums and one round more."""
        histogram = self.accepted_histogram
        if record.num_drafted:
            at = record.num_accepted
            histogram = (*histogram[:at], histogram[at] + 1, *histogram[at + 1 :])
        return SpeculationStats(
            depth=self.depth,
            num_rounds=self.num_rounds + 1,
            num_drafts=self.num_drafts + (record.num_drafted > 0),
            num_drafted=self.num_drafted + record.num_drafted,
            num_accepted=self.num_accepted + record.num_accepted,
            accepted_histogram=histogram,
        )

    @property
    def acceptance_rate(self) -> float:
        """Accepted share of the drafted tokens; 0 when nothing was drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per drafted round, the recovered or bonus one included."""
        return 1.0 + self.num_accepted / self.num_drafts if self.num_drafts else 1.0

    @property
    def accepted_per_position(self) -> tuple[int, ...]:
        """How often the draft token at each position was accepted, position 0 first."""
        counts = self.accepted_histogram
        return tuple(sum(counts[position + 1 :]) for position in range(len(counts) - 1))


@dataclass(frozen=True)
class Completion:
    """The end of a request. `error` is set exactly when the reason is "error".

    `num_cached_tokens` counts those of the prompt whose rows were known from an earlier request. `stop_reason` is the
    stop string or the one of `stop_token_ids` that ended the text, None if something else did.
    """

    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    queue_time_s: float
    speculation: SpeculationStats
    error: EngineError | None = None
    num_cached_tokens: int = 0
    stop_reason: int | str | None = None


@dataclass(frozen=True)
class Update:
    """News of one request: the text that became certain, the round that gave it, and the end if this is it.

    `pieces` is the text that each of `token_ids` made certain, `scores` are theirs if the request wants any. The first
    update with news of a request that scores its prompt has `prompt_scores`, one for each of its tokens but the first.
    """

    request_id: str
    pieces: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    round: RoundRecord | None = None
    completion: Completion | None = None
    scores: tuple[TokenScore, ...] = ()
    prompt_scores: tuple[TokenScore, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Load:
    """How busy the engine is.

    Cache sizes are of running sequences: what they hold, what they may grow to, and the most that may be. Prefix sizes
    are of rows kept for later requests, in bytes, and of prompt tokens looked up there and found, since the start.
    `num_step_rows` and `step_s` are of the last step: rows forwarded, of which at most `max_step_rows`, and seconds.
    """

    num_running: int = 0
    num_waiting: int = 0
    cache_bytes: int = 0
    reserved_bytes: int = 0
    max_cache_bytes: int = 0
    prefix_bytes: int = 0
    max_prefix_bytes: int = 0
    num_prefix_queries: int = 0
    num_prefix_hits: int = 0
    num_step_rows: int = 0
    max_step_rows: int = 0
    step_s: float = 0.0


@dataclass(frozen=True)
class SpeculationReport:
    """What the engine has learnt of speculation from its rounds, in seconds as of now.

    `verify_s` is what a round takes by its number of rows, `draft_s` what a draft token takes by drafter, `survival`
    the share of a drafter's drafts that survive up to each position, the first one first.
    """

    verify_s: Mapping[int, float] = field(default_factory=dict)
    draft_s: Mapping[str, float] = field(default_factory=dict)
    survival: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
