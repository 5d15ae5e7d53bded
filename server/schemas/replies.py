"""The response bodies of both completion endpoints, in OpenAI's words, and what is told of speculation, in vLLM's.

Knows shapes and what fills them; knows no HTTP and no stream.
"""

from typing import Literal, Self, TypeAlias

from pydantic import BaseModel, Field, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer

from mtplx.engine.types import FinishReason, SpeculationStats

ChoiceEnd: TypeAlias = FinishReason | Literal["tool_calls"]


class PromptTokensDetails(BaseModel):
    cached_tokens: int = Field(description="Tokens of the prompt whose rows were kept from earlier requests.")
    audio_tokens: int = Field(description="Always 0.")


class CompletionTokensDetails(BaseModel):
    """`…_prediction_tokens` count what OpenAI calls predicted outputs, not speculation: that is in the metrics."""

    reasoning_tokens: int = Field(description="Tokens of reasoning, which are among the output's.")
    audio_tokens: int = Field(description="Always 0.")
    accepted_prediction_tokens: int = Field(description="Tokens of the prediction that are in the output.")
    rejected_prediction_tokens: int = Field(description="Tokens of the prediction that are not.")


class Usage(BaseModel):
    prompt_tokens: int = Field(description="Tokens of the prompts.")
    completion_tokens: int = Field(description="Tokens written, all choices together.")
    total_tokens: int = Field(description="Both.")
    prompt_tokens_details: PromptTokensDetails = Field(description="The prompt's tokens in detail.")
    completion_tokens_details: CompletionTokensDetails = Field(description="The written tokens in detail.")


class SpeculativeDecoding(BaseModel):
    """Fields as in https://docs.vllm.ai/en/stable/features/speculative_decoding/acceptance_metrics/.

    `acceptance_histogram[j]` is the number of drafts of which j tokens were accepted; its length is
    num_spec_tokens + 1 and its sum num_spec_steps.
    """

    mean_acceptance_length: float = Field(description="Tokens a round, that of the target included.")
    draft_acceptance_rate: float = Field(description="Share of draft tokens that were accepted.")
    acceptance_histogram: list[int] = Field(description="Drafts by the number of their tokens that were accepted.")
    num_spec_steps: int = Field(description="Drafts.")
    num_accepted_draft_tokens: int = Field(description="Draft tokens that were accepted.")
    num_draft_tokens: int = Field(description="Draft tokens.")
    num_spec_tokens: int = Field(description="The most tokens in a draft.")

    @classmethod
    def of(cls, stats: SpeculationStats) -> Self:
        num_missing = stats.depth + 1 - len(stats.accepted_histogram)
        return cls(
            mean_acceptance_length=stats.mean_acceptance_length,
            draft_acceptance_rate=stats.acceptance_rate,
            acceptance_histogram=[*stats.accepted_histogram, *[0] * num_missing],
            num_spec_steps=stats.num_drafts,
            num_accepted_draft_tokens=stats.num_accepted,
            num_draft_tokens=stats.num_drafted,
            num_spec_tokens=stats.depth,
        )


class Metrics(BaseModel):
    speculative_decoding: SpeculativeDecoding = Field(description="What speculation did for this reply.")


class Choice(BaseModel):
    """One choice, whole or a chunk of it. `stop_reason`, as vLLM has it, is left out but where a request's own stop
    token or stop string ended the text."""

    index: int = Field(default=0, description="Which choice it is, prompt by prompt.")
    finish_reason: ChoiceEnd | None = Field(description="Why it ended; null in chunks before its end.")
    stop_reason: int | str | None = Field(
        default=None, description="The stop token or stop string of the request that ended it."
    )

    @model_serializer(mode="wrap")
    def _said(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        if self.stop_reason is None:
            del fields["stop_reason"]
        return fields


class TextLogprobs(BaseModel):
    """Of each token: its text, its log probability, those of the likeliest tokens, and where in the text it begins.

    Nothing comes before the first token of an echoed prompt, which therefore has no probability.
    """

    tokens: list[str] = Field(description="The tokens' texts.")
    token_logprobs: list[float | None] = Field(description="Their log probabilities.")
    top_logprobs: list[dict[str, float] | None] = Field(description="Those of the likeliest tokens by their texts.")
    text_offset: list[int] = Field(description="Where in the text each token begins, in characters.")


class TextChoice(Choice):
    text: str = Field(description="The text, or what a chunk adds to it.")
    logprobs: TextLogprobs | None = Field(default=None, description="Log probabilities, if the request asks for them.")


class TokenLogprob(BaseModel):
    """A token and its log probability. `bytes` is None for a token that stands for no text."""

    token: str = Field(description="The token's text.")
    logprob: float = Field(description="Its log probability.")
    bytes: list[int] | None = Field(description="Its bytes.")


class ChosenTokenLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob] = Field(description="The likeliest tokens in its place.")


class ChatLogprobs(BaseModel):
    content: list[ChosenTokenLogprob] = Field(description="The content's tokens.")
    refusal: None = Field(default=None, description="Always null.")


class CalledFunction(BaseModel):
    name: str = Field(description="The function's name.")
    arguments: str = Field(description="Its arguments: the JSON text of an object.")


class CalledTool(BaseModel):
    id: str = Field(description="What the message that answers it calls it.")
    type: Literal["function"] = Field(default="function", description="What kind of tool it is.")
    function: CalledFunction = Field(description="The function, and with which arguments.")


class ChatMessage(BaseModel):
    """What the assistant says. Its thoughts and the tools it calls are left out where there are none."""

    role: Literal["assistant"] = Field(default="assistant", description="Who speaks.")
    content: str | None = Field(description="What it says; null if it only calls tools.")
    reasoning_content: str | None = Field(default=None, description="What it thought before.")
    tool_calls: list[CalledTool] | None = Field(default=None, description="The tools it calls.")
    refusal: None = Field(default=None, description="Always null.")
    annotations: list[None] = Field(default_factory=list, description="Always empty.")

    @model_serializer(mode="wrap")
    def _said(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in ("reasoning_content", "tool_calls")
        }


class ChatChoice(Choice):
    message: ChatMessage = Field(description="The message.")
    logprobs: ChatLogprobs | None = Field(default=None, description="Log probabilities, if the request asks for them.")


class FunctionDelta(BaseModel):
    """What a chunk adds to a call: its name at once, and then its arguments piece by piece."""

    name: str | None = Field(default=None, description="The function's name, in the first chunk of a call.")
    arguments: str = Field(default="", description="More of the JSON text of its arguments.")

    @model_serializer
    def _said(self) -> dict[str, str]:
        return {**({} if self.name is None else {"name": self.name}), "arguments": self.arguments}


class ToolCallDelta(BaseModel):
    index: int = Field(description="Which of the message's calls it is.")
    id: str | None = Field(default=None, description="What the call is called, in its first chunk.")
    type: Literal["function"] | None = Field(default=None, description="What kind of tool, in its first chunk.")
    function: FunctionDelta = Field(description="What the chunk adds to the call.")

    @model_serializer
    def _said(self) -> dict[str, object]:
        said = {"index": self.index, "id": self.id, "type": self.type, "function": self.function}
        return {name: value for name, value in said.items() if value is not None}


class ChatDelta(BaseModel):
    """What a chunk adds to the message; a field that it says nothing about is left out."""

    role: Literal["assistant"] | None = Field(default=None, description="Who speaks, in the first chunk.")
    content: str | None = Field(default=None, description="More of what it says.")
    reasoning_content: str | None = Field(default=None, description="More of what it thinks before.")
    tool_calls: list[ToolCallDelta] | None = Field(default=None, description="More of the tools it calls.")

    @model_serializer
    def _said(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class ChatChunkChoice(Choice):
    delta: ChatDelta = Field(description="What the chunk adds to the message.")
    logprobs: ChatLogprobs | None = Field(default=None, description="Log probabilities, if the request asks for them.")


class Reply(BaseModel):
    """A whole reply or one chunk of it. Unset is not the same as None for the last two fields, nor is it to clients."""

    id: str = Field(description="The reply's id.")
    object: str = Field(description="What this is.")
    created: int = Field(description="When the request came, in Unix seconds.")
    model: str = Field(description="The model's name.")
    system_fingerprint: str = Field(description="While it stays, a seeded request gets the same answer.")
    choices: list[SerializeAsAny[Choice]] = Field(description="The choices, or those that a chunk is about.")
    usage: Usage | None = Field(default=None, description="How many tokens it took.")
    metrics: Metrics | None = Field(default=None, description="What decoding was like.")

    def json_bytes(self) -> bytes:
        unset = {"usage", "metrics"} - self.model_fields_set
        return self.model_dump_json(exclude=unset).encode()
