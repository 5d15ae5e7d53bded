"""The body of POST /v1/completions."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from mtplx.server.schemas.fields import END_OF_INTEGERS, Natural, invalid
from mtplx.server.schemas.sampling import MAX_CHOICES, SamplingBody, TokenId

MAX_LOGPROBS = 5  # as OpenAI has it
MAX_PROMPTS = 2048


def _read_prompts(value: object) -> list[str | list[int]]:
    """One prompt or a list of them, each a text or token ids."""
    if isinstance(value, str):
        prompts: list[object] = [value]
    elif not isinstance(value, list):
        raise invalid("must be a string, a list of token ids, or a list of such prompts", "invalid_type")
    else:
        prompts = value if value and isinstance(value[0], str | list) else [value]
    if len(prompts) > MAX_PROMPTS:
        raise invalid(f"at most {MAX_PROMPTS} prompts are allowed in a request")
    if len(prompts) == 1:
        return [_read_prompt(prompts[0])]
    return [_read_prompt(prompt, f"[{index}]") for index, prompt in enumerate(prompts)]


def _read_prompt(value: object, at: str = "") -> str | list[int]:
    if not isinstance(value, str | list):
        raise invalid("must be a string or a list of token ids", "invalid_type", at=at)
    if not value:
        raise invalid("must not be empty", at=at)
    if isinstance(value, str):
        return value
    if set(map(type, value)) != {int}:
        raise invalid("must be a string or a list of token ids", "invalid_type", at=at)
    if min(value) < 0 or max(value) >= END_OF_INTEGERS:
        raise invalid("a token id is out of range", at=at)
    return value


class CompletionBody(SamplingBody):
    """The body of POST /v1/completions."""

    PROMPT_FIELD = "prompt"

    prompt: Annotated[
        list[str | list[int]],
        BeforeValidator(_read_prompts, json_schema_input_type=str | list[str] | list[TokenId] | list[list[TokenId]]),
    ] = Field(description="What to go on from: a text or token ids, or a list of such prompts.")
    max_tokens: Natural | None = Field(
        None, description="The most tokens to write, 16 if not given; with `echo` there may be none, to score a prompt."
    )
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, description="How many texts to write for each prompt, of which the `n` likeliest are told."
    )
    echo: bool | None = Field(None, description="Whether each choice begins with its prompt.")
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = Field(
        None, description="How many of the likeliest tokens to tell beside each token, with their log probabilities."
    )
    suffix: Annotated[str, BeforeValidator(lambda value: value or "", json_schema_input_type=str | None)] = Field(
        "", description="What comes after the text to write, for models that can fill in a gap."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.best_of is not None and self.best_of < self.num_choices:
            raise invalid(f"must be at least n, which is {self.num_choices}", at=".best_of")
        if self.stream and self.num_candidates > self.num_choices:
            raise invalid("the best of several texts cannot be streamed; let it equal n", at=".best_of")
        if self.max_tokens == 0 and not self.echo:
            raise invalid("must be at least 1, unless echo asks for the prompt to be given back", at=".max_tokens")
        if self.suffix and self.echo:
            raise invalid("cannot be given back in one piece with a suffix; leave one of them out", at=".echo")
        return self

    @property
    def num_prompts(self) -> int:
        return len(self.prompt)

    @property
    def num_candidates(self) -> int:
        return self.best_of or self.num_choices

    @property
    def candidates_field(self) -> str:
        return "n" if self.best_of is None else "best_of"

    @property
    def num_logprobs(self) -> int | None:
        # The best of several is the likeliest, for which all are scored.
        return 0 if self.logprobs is None and self.num_candidates > self.num_choices else self.logprobs

    @property
    def scores_prompt(self) -> bool:
        return bool(self.echo and (self.logprobs is not None or self.max_tokens == 0))
