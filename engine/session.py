"""Decoding without a server: one sequence at a time, on the caller's own thread, whole or stage by stage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from mtplx.engine.assembly import default_prefill_chunk, load_draft_head, load_draft_model, make_speculator
from mtplx.engine.errors import InvalidRequestError, StageOrderError
from mtplx.engine.limits import Limits
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.shipped_head import with_shipped_head
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Emission, Speculator
from mtplx.engine.text.tokenizer import ChatMessage
from mtplx.engine.types import (
    AUTO,
    Acceptance,
    Depth,
    Draft,
    Request,
    SamplingParams,
    SpeculationStats,
    Verdict,
    usual_acceptance,
)
from mtplx.kernels.inputs import InputsChoice
from mtplx.kernels.preparing import prepare_kernels, speed_up

Prompt = str | Sequence[int] | Sequence[ChatMessage]


@dataclass(frozen=True)
class GenerationConfig:
    """What to decode with. `drafter` and `speculative_depth` "auto" leave who drafts, and how many tokens a round, to
    measured gain; so does a depth of "auto" up to `max_speculative_depth`. `acceptance` None is "rejection", but
    "coupled" where a seed has to fix the text whatever the engine chooses. `prediction` is text that the output may
    resemble. `model` is as for `--model`: None for the default one, a path, or a hub id; `draft_model` names the model
    of the drafter "model" likewise. `draft_head` is a folder with the head of the drafter "head", "none" for no head,
    None for the one that comes with the model or with mtplx. `threads` is how many the native kernels use on a CPU,
    None one for each processor, and `activations` what they multiply quantized weights with: both are for the whole
    process. `kv_cache_dtype` is what they keep keys and values as: "auto" is float16 where decoder layers run in one
    native call.

    Temperature 0 is greedy; without a seed, sampling differs from run to run. `logit_bias` maps token ids to what is
    added to their logits. Raises InvalidRequestError, which names the field, for a value that `SamplingParams` refuses.
    """

    model: str | None = None
    speculative_depth: Depth = AUTO
    max_speculative_depth: int = 16
    drafter: str = AUTO
    acceptance: Acceptance | None = None
    prediction: str = ""
    self_draft_layers: int | None = None
    self_draft_bits: int | None = None
    draft_model: str | None = None
    draft_head: Path | None = None
    threads: int | None = None
    native_kernels: bool = True
    activations: InputsChoice = "auto"
    kv_cache_dtype: Literal["auto", "float32"] = "auto"
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise InvalidRequestError("stop must be a tuple of strings, not a string", field="stop")
        self.sampling()  # a value out of its range is told now, not once the model has been loaded

    def sampling(self) -> SamplingParams:
        """How tokens are chosen."""
        return SamplingParams(**{each.name: getattr(self, each.name) for each in fields(SamplingParams)})

    @property
    def most_depth(self) -> int:
        """The most tokens that a round may draft."""
        depth = self.speculative_depth
        return depth if isinstance(depth, int) else self.max_speculative_depth

    def request(self, prompt: Sequence[int], prediction: Sequence[int] = ()) -> Request:
        """The request to decode after `prompt`."""
        sampling, auto_depth = self.sampling(), self.speculative_depth == AUTO
        usual = usual_acceptance(sampling, is_planned=auto_depth or self.drafter == AUTO)
        return Request(
            "session",
            tuple(prompt),
            self.max_tokens,
            sampling,
            self.stop,
            depth=self.most_depth,
            drafter=self.drafter,
            auto_depth=auto_depth,
            acceptance=self.acceptance or usual,
            prediction=tuple(prediction),
        )


@dataclass(frozen=True)
class Piece:
    """Text as it became certain, and whether the token that made it so was drafted."""

    text: str
    accepted_draft: bool


class EngineSession:
    """A loaded model to decode with:

        with EngineSession(GenerationConfig(speculative_depth=3)) as session:
            for text in session.generate("Once upon a time"):
                print(text, end="")

    To study a round, `begin` a prompt and call `draft`, `verify` and then either `commit` or
    `rollback_speculative`; `step` is the three in a row. Entering raises ModelLoadError if the model cannot be had.
    A session belongs to the thread that entered it.
    """

    def __init__(self, config: GenerationConfig | None = None) -> None:
        self.config = config or GenerationConfig()
        self._loaded: LoadedModel | None = None
        self._prefill_chunk = 0
        self._speculator: Speculator | None = None
        self._sequence: DecodedSequence | None = None
        self._draft: Draft | None = None
        self._verdict: Verdict | None = None

    def __enter__(self) -> Self:
        kernels = prepare_kernels(
            use_native=self.config.native_kernels, threads=self.config.threads, inputs=self.config.activations
        )
        loaded = load_model(self.config.model)
        self._prefill_chunk = default_prefill_chunk(kernels)
        speed_up(loaded.model, kernels)
        self._loaded = with_shipped_head(loaded)
        head = load_draft_head(self.config.draft_head, self._loaded, kernels)
        self._speculator = make_speculator(
            self._loaded,
            draft=load_draft_model(self.config.draft_model, kernels),
            head=head,
            self_draft_layers=self.config.self_draft_layers,
            self_draft_bits=self.config.self_draft_bits,
            measure_self=self.config.drafter == "self" or (self.config.drafter == AUTO and head is None),
            half_rows=self.config.kv_cache_dtype == AUTO,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loaded = self._speculator = self._sequence = self._draft = self._verdict = None

    @property
    def model(self) -> LoadedModel:
        if self._loaded is None:
            raise StageOrderError("the session is not open; use it in a `with` statement")
        return self._loaded

    @property
    def stats(self) -> SpeculationStats:
        """Of the text begun last: rounds, tokens drafted and accepted, and accepted by position."""
        if self._sequence is None:
            return SpeculationStats.none(self.config.most_depth)
        return self._sequence.speculation

    @property
    def num_output(self) -> int:
        """Tokens decoded so far of the text begun last."""
        return 0 if self._sequence is None else self._sequence.num_output

    def generate(self, prompt: Prompt) -> Iterator[str]:
        """The text that follows `prompt`, in pieces as they become certain.

        `prompt` is a text, token ids, or chat messages, which the model's chat template turns into a prompt. Raises
        InvalidRequestError for a prompt or a configuration that the model cannot serve.
        """
        return (piece.text for piece in self.generate_pieces(prompt))

    def generate_pieces(self, prompt: Prompt) -> Iterator[Piece]:
        """As `generate`, telling which pieces were drafted."""
        self.begin(prompt)
        begun = self._sequence
        while True:
            if self._sequence is not begun:
                raise StageOrderError("the session has begun another text; generate one after the other")
            emission = self.step()
            for index, text in enumerate(emission.pieces):
                if text:
                    yield Piece(text, index < emission.record.num_accepted)
            if emission.reason is not None:
                return

    # ---- the stages of a round --------------------------------------------------------------------------------

    def begin(self, prompt: Prompt, config: GenerationConfig | None = None) -> None:
        """Forward the prompt, all but its last token, which the first round takes as pending.

        `config` is how to decode this text, if not as the session does; model, kernels and threads stay the session's.
        """
        config = config or self.config
        prediction = self.model.tokenizer.encode(_unicode(config.prediction), add_special_tokens=False)
        request = config.request(self._tokens(prompt), prediction)
        speculator = self._open_speculator()
        context_length = self.model.context_length
        Limits(
            context_length, self.model.vocab_size, max_depth=context_length, drafters=tuple(speculator.drafters)
        ).check(request)
        self._draft = self._verdict = None
        self._sequence = speculator.begin(request)
        while self._sequence.num_to_prefill:
            num_rows = min(self._sequence.num_to_prefill, self._prefill_chunk)
            speculator.prefill(self._sequence, num_rows)

    def draft(self) -> Draft:
        """Propose tokens to follow the pending one. Drops a draft that was not committed."""
        self.rollback_speculative()
        if self._begun().reason is not None:
            raise StageOrderError("the text has ended; call begin(prompt) for another")
        [self._draft] = self._open_speculator().draft([self._begun()])
        return self._draft

    def verify(self) -> Verdict:
        """Run the target over the pending token and the draft. Their rows are in the cache now, uncommitted."""
        if self._draft is None or self._verdict is not None:
            raise StageOrderError("there is no draft to verify; call draft() first")
        [verdict] = self._open_speculator().verify([self._begun()], [self._draft])
        if isinstance(verdict, Exception):
            raise verdict
        self._verdict = verdict
        return self._verdict

    def commit(self) -> Emission:
        """Make what was accepted part of the text, and forget the rows of the rest."""
        if self._draft is None or self._verdict is None:
            raise StageOrderError("there is no verdict to commit; call draft() and verify() first")
        emission = self._open_speculator().commit(self._begun(), self._draft, self._verdict)
        self._draft = self._verdict = None
        return emission

    def rollback_speculative(self) -> None:
        """Forget the draft and every row that verifying it left in the cache."""
        self._begun().cache.rollback()
        self._draft = self._verdict = None

    def step(self) -> Emission:
        """One whole round."""
        self.draft()
        self.verify()
        return self.commit()

    def _tokens(self, prompt: Prompt) -> Sequence[int]:
        tokenizer = self.model.tokenizer
        if isinstance(prompt, str):
            return tokenizer.encode(_unicode(prompt))
        if all(isinstance(part, Integral) for part in prompt):
            return [int(part) for part in prompt]  # type: ignore[arg-type]
        rendered = tokenizer.render_chat(prompt)  # type: ignore[arg-type]
        return tokenizer.encode(_unicode(rendered), add_special_tokens=False)

    def _open_speculator(self) -> Speculator:
        if self._speculator is None:
            raise StageOrderError("the session is not open; use it in a `with` statement")
        return self._speculator

    def _begun(self) -> DecodedSequence:
        if self._sequence is None:
            raise StageOrderError("no text is begun; call begin(prompt) first")
        return self._sequence


def _unicode(text: str) -> str:
    """The text, which must be one: Python takes halves of characters for characters, tokenizers do not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("the prompt is not valid Unicode: it has lone surrogates", field="prompt") from None
    return text
