"""The body of POST /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import FailFast, Field, model_validator

from mtplx.server.schemas.fields import PositiveInt, ShortMap, invalid
from mtplx.server.schemas.messages import Message
from mtplx.server.schemas.sampling import SamplingBody

MAX_TOP_LOGPROBS = 20  # as OpenAI has it


class ChatBody(SamplingBody):
    """The body of POST /v1/chat/completions."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "moderation": (),
        "reasoning_effort": (),
        "response_format": ({"type": "text"},),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "verbosity": ("medium",),
        "web_search_options": (),
    }
    PROMPT_FIELD = "messages"

    messages: Annotated[list[Message], FailFast()] = Field(min_length=1)
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    # Accepted: these change nothing here.
    metadata: ShortMap | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: ShortMap | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None

    @model_validator(mode="after")
    def _limits_output_once(self) -> Self:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise invalid("differs from max_completion_tokens; give one of them", at=".max_tokens")
        return self

    @model_validator(mode="after")
    def _asks_for_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise invalid("is allowed only when logprobs is true", at=".top_logprobs")
        return self

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    @property
    def output_limit_field(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
