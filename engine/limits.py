"""What a request may ask of a model, checked before anything is queued. Knows the limits; knows no HTTP."""

from dataclasses import dataclass

from mtplx.engine.errors import ContextLengthError, InvalidRequestError
from mtplx.engine.types import Request

PLAIN = "none"  # the drafter's name that asks for no drafts


@dataclass(frozen=True)
class Limits:
    """The bounds of one engine. `drafters` are the names it serves, besides "none"."""

    context_length: int
    max_depth: int
    drafters: tuple[str, ...]

    def check(self, request: Request) -> None:
        """Raises InvalidRequestError, or ContextLengthError, which name the field at fault."""
        if not request.prompt:
            raise InvalidRequestError("the prompt is empty; give at least one token", field="prompt")
        if request.max_tokens < 1:
            raise InvalidRequestError(f"max_tokens must be at least 1, not {request.max_tokens}", field="max_tokens")
        if not 0 <= request.depth <= self.max_depth:
            raise InvalidRequestError(
                f"speculative_depth must be from 0 to {self.max_depth}, not {request.depth}",
                field="speculative_depth",
            )
        if request.drafter not in (PLAIN, *self.drafters):
            known = ", ".join((*self.drafters, PLAIN))
            raise InvalidRequestError(
                f"drafter {request.drafter!r} is not available here; choose one of {known}", field="drafter"
            )
        self._check_length(len(request.prompt), request.max_tokens)

    def _check_length(self, num_prompt: int, max_tokens: int) -> None:
        if num_prompt + max_tokens > self.context_length:
            raise ContextLengthError(
                f"This model's maximum context length is {self.context_length} tokens, but "
                f"{num_prompt + max_tokens} are asked for ({num_prompt} in the prompt and up to {max_tokens} of "
                "output); shorten the prompt or lower max_tokens",
                field="prompt",
            )
