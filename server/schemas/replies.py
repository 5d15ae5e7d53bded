"""The response bodies of both completion endpoints, in OpenAI's words, and what is told of speculation, in vLLM's.

Knows shapes and what fills them; knows no HTTP and no stream.
"""

from typing import Literal, Self, TypeAlias

from pydantic import BaseModel, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer

from mtplx.engine.types import FinishReason, SpeculationStats

ChoiceEnd: TypeAlias = FinishReason | Literal["tool_calls"]


class PromptTokensDetails(BaseModel):
    cached_tokens: int
    audio_tokens: int


class CompletionTokensDetails(BaseModel):
    """`…_prediction_tokens` count what OpenAI calls predicted outputs, not speculation: that is in the metrics."""

    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class SpeculativeDecoding(BaseModel):
    """Fields as in https://docs.vllm.ai/en/stable/features/speculative_decoding/acceptance_metrics/.

    `acceptance_histogram[j]` is the number of drafts of which j tokens were accepted; its length is
    num_spec_tokens + 1 and its sum num_spec_steps.
    """

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int

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
    speculative_decoding: SpeculativeDecoding


class Choice(BaseModel):
    """One choice, whole or a chunk of it. `stop_reason`, as vLLM has it, is left out but where a request's own stop
    token or stop string ended the text."""

    index: int = 0
    finish_reason: ChoiceEnd | None
    stop_reason: int | str | None = None

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

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(Choice):
    text: str
    logprobs: TextLogprobs | None = None


class TokenLogprob(BaseModel):
    """A token and its log probability. `bytes` is None for a token that stands for no text."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChosenTokenLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    content: list[ChosenTokenLogprob]
    refusal: None = None


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    annotations: list[None] = []


class ChatChoice(Choice):
    message: ChatMessage
    logprobs: ChatLogprobs | None = None


class ChatDelta(BaseModel):
    """What a chunk adds to the message; a field that it says nothing about is left out."""

    role: Literal["assistant"] | None = None
    content: str | None = None

    @model_serializer
    def _said(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in sorted(self.model_fields_set, reverse=True)}


class ChatChunkChoice(Choice):
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None


class Reply(BaseModel):
    """A whole reply or one chunk of it. Unset is not the same as None for the last two fields, nor is it to clients."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[SerializeAsAny[Choice]]
    usage: Usage | None = None
    metrics: Metrics | None = None

    def json_bytes(self) -> bytes:
        unset = {"usage", "metrics"} - self.model_fields_set
        return self.model_dump_json(exclude=unset).encode()
