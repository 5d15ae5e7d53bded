"""The body of POST /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import FailFast, Field, model_validator

from mtplx.server.schemas.fields import PositiveInt, ShortMap, invalid
from mtplx.server.schemas.messages import Message
from mtplx.server.schemas.sampling import SamplingBody
from mtplx.server.schemas.tool_choice import ChosenTools, ToolUse, tool_use
from mtplx.server.schemas.tools import Tools

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
        "verbosity": ("medium",),
        "web_search_options": (),
    }
    PROMPT_FIELD = "messages"

    messages: Annotated[list[Message], FailFast()] = Field(
        min_length=1, description="The conversation so far, to which the reply is the assistant's next message."
    )
    max_completion_tokens: PositiveInt | None = Field(None, description="The same as max_tokens, its newer name.")
    logprobs: bool | None = Field(None, description="Whether to tell the log probability of each token.")
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="How many of the likeliest tokens to tell beside each token; needs logprobs."
    )
    tools: Tools = Field(None, description="What the model may call.")
    tool_choice: ChosenTools = Field(None, description="Whether it may, must or must not call, and which of them.")
    parallel_tool_calls: bool | None = Field(
        None, description="Whether it may call several at once; if unset it may, unless it must call."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Variables for the model's chat template, as vLLM has it, such as enable_thinking."
    )
    continue_final_message: bool | None = Field(
        None, description="Whether the reply goes on with the last message, the assistant's own, as vLLM has it."
    )
    add_generation_prompt: bool | None = Field(
        None, description="As vLLM has it; must be the opposite of continue_final_message, which says the same."
    )
    metadata: ShortMap | None = Field(None, description="Accepted: up to 16 texts by name; nothing is stored here.")
    prompt_cache_key: str | None = Field(None, description="Accepted: what prompts share is found without a key.")
    prompt_cache_options: ShortMap | None = Field(None, description="Accepted: what prompts share is kept anyway.")
    prompt_cache_retention: str | None = Field(None, description="Accepted: rows are kept as long as there is room.")
    safety_identifier: str | None = Field(None, description="Accepted: nobody is told of here.")
    service_tier: str | None = Field(None, description="Accepted: there is one tier; see priority.")
    store: bool | None = Field(None, description="Accepted: nothing is stored here.")

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

    @model_validator(mode="after")
    def _uses_tools_that_are_there(self) -> Self:
        tool_use(self.tools or [], self.tool_choice, self.parallel_tool_calls)  # raises if it does not
        return self

    @model_validator(mode="after")
    def _begins_a_turn_or_goes_on(self) -> Self:
        begins, goes_on = self.add_generation_prompt, bool(self.continue_final_message)
        if begins is not None and begins == goes_on:
            raise invalid("must be true unless continue_final_message is, and then false", at=".add_generation_prompt")
        return self

    @property
    def tool_use(self) -> ToolUse:
        """What tools, tool_choice and parallel_tool_calls come to."""
        return tool_use(self.tools or [], self.tool_choice, self.parallel_tool_calls)

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    @property
    def output_limit_field(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
