"""What a request may ask of a model, checked before anything is queued. Knows the limits; knows no HTTP."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.errors import ContextLengthError, InvalidRequestError
from mtplx.engine.types import AUTO, PLAIN, Request


@dataclass(frozen=True)
class Limits:
    """The bounds of one engine. `drafters` are the names it serves, besides "auto" and "none". `memory` is that for
    rows, None where there is enough in any case."""

    context_length: int
    vocab_size: int
    max_depth: int
    drafters: tuple[str, ...]
    memory: CacheMemory | None = None

    def check(self, request: Request) -> None:
        """Raises InvalidRequestError, or ContextLengthError, which name the field at fault.

        The values of `request.sampling` are within their ranges already: it cannot be made otherwise.
        """
        self.check_prompt(request.prompt)
        self._check_tokens("logit_bias", request.sampling.logit_bias)
        self._check_tokens("prediction", request.prediction)
        self._check_tokens("stop_token_ids", request.stop_token_ids)
        if len(request.prediction) > self.context_length:
            raise InvalidRequestError(
                f"prediction has {len(request.prediction)} tokens, more than this model's maximum context length of "
                f"{self.context_length}; shorten it",
                field="prediction",
            )
        if any(not stop for stop in request.stop):
            raise InvalidRequestError("a stop string is empty; leave it out", field="stop")
        self._check_output(request)
        if not 0 <= request.depth <= self.max_depth:
            raise InvalidRequestError(
                f"speculative_depth must be from 0 to {self.max_depth}, not {request.depth}",
                field="speculative_depth",
            )
        if request.drafter not in (AUTO, PLAIN, *self.drafters):
            known = ", ".join((*self.drafters, AUTO, PLAIN))
            raise InvalidRequestError(
                f"drafter {request.drafter!r} is not available here; choose one of {known}", field="drafter"
            )
        self._check_length(len(request.prompt), request.max_tokens)
        if self.memory is not None:
            self.memory.check(request)

    def check_prompt(self, tokens: Sequence[int]) -> None:
        """Raises InvalidRequestError unless these are tokens of the model, however many."""
        if not tokens:
            raise InvalidRequestError("the prompt is empty; give at least one token", field="prompt")
        self._check_tokens("prompt", tokens)

    def _check_output(self, request: Request) -> None:
        least = 0 if request.scores_prompt else 1
        if request.max_tokens < least:
            raise InvalidRequestError(
                f"max_tokens must be at least {least}, not {request.max_tokens}", field="max_tokens"
            )
        if not 0 <= request.min_tokens <= request.max_tokens:
            raise InvalidRequestError(
                f"min_tokens must be from 0 to max_tokens, which is {request.max_tokens}, not {request.min_tokens}",
                field="min_tokens",
            )
        if request.num_logprobs is not None and not 0 <= request.num_logprobs <= self.vocab_size:
            raise InvalidRequestError(
                f"logprobs must be from 0 to {self.vocab_size}, not {request.num_logprobs}", field="logprobs"
            )
        if request.ignore_eos and request.grammar is not None:
            raise InvalidRequestError(
                "ignore_eos cannot go with a grammar, whose texts end with an end-of-text token; leave one of them out",
                field="ignore_eos",
            )

    def _check_tokens(self, field: str, tokens: Collection[int]) -> None:
        for token in (min(tokens, default=0), max(tokens, default=0)):
            if not 0 <= token < self.vocab_size:
                raise InvalidRequestError(
                    f"{field}: there is no token {token}; the vocabulary has those from 0 to {self.vocab_size - 1}",
                    field=field,
                )

    def _check_length(self, num_prompt: int, max_tokens: int) -> None:
        most = f"This model's maximum context length is {self.context_length} tokens"
        if max_tokens and num_prompt >= self.context_length:
            raise ContextLengthError(
                f"{most}, of which output needs at least one, but the prompt alone has {num_prompt}; shorten it",
                field="prompt",
            )
        if not max_tokens and num_prompt > self.context_length:
            raise ContextLengthError(f"{most}, but the prompt has {num_prompt}; shorten it", field="prompt")
        if num_prompt + max_tokens > self.context_length:
            raise ContextLengthError(
                f"{most}, but {num_prompt + max_tokens} are asked for: {num_prompt} in the prompt and up to "
                f"{max_tokens} of output, for which it leaves room for {self.context_length - num_prompt}",
                field="max_tokens",
            )
