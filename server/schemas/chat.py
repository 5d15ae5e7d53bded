"""The body of POST /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import FailFast, Field, model_validator

from mtplx.server.schemas.fields import PositiveInt, ShortMap, invalid
from mtplx.server.schemas.messages import Message
from mtplx.server.schemas.sampling import SamplingBody


class ChatBody(SamplingBody):
    """The body of POST /v1/chat/completions."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **SamplingBody.UNSUPPORTED,
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "logprobs": (False,),
        "modalities": (["text"],),
        "moderation": (),
        "reasoning_effort": (),
        "response_format": ({"type": "text"},),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "top_logprobs": (0,),
        "verbosity": ("medium",),
        "web_search_options": (),
    }
    PROMPT_FIELD = "messages"

    messages: Annotated[list[Message], FailFast()] = Field(min_length=1)
    max_completion_tokens: PositiveInt | None = None
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

    @property
    def output_limit_field(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
