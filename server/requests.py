"""The request bodies of both completion endpoints, in OpenAI's words.

Knows which fields there are, their types and ranges. Knows no model: what depends on one (names, vocabulary, context)
is checked at admission. A field is supported, or accepted because it changes nothing here, or refused by name; see
`UNSUPPORTED` for those that are refused unless they ask for what happens anyway.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from mtplx.configs.settings import DrafterName

MAX_STOPS = 4

Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
PositiveInt: TypeAlias = Annotated[int, Field(ge=1)]


def _invalid(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", "{message}", {"message": message})


def _read_stops(value: object) -> list[str]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise _invalid("must be a non-empty string or a list of them")
    if len(stops) > MAX_STOPS:
        raise _invalid(f"at most {MAX_STOPS} stop strings are allowed")
    return stops


def _read_bias(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping | None):
        raise _invalid("must be an object that maps token ids to numbers")
    bias = {}
    for token, amount in (value or {}).items():
        if not (token.isascii() and token.isdecimal()):
            raise _invalid(f"{token!r} is not a token id")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not -100 <= amount <= 100:
            raise _invalid(f"the bias of token {token} must be a number from -100 to 100")
        bias[int(token)] = float(amount)
    return bias


def _read_prompt(value: object) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        if not value:
            raise _invalid("must not be empty")
        return value
    if not isinstance(value, list):
        raise _invalid("must be a string or a list of token ids")
    if any(isinstance(item, str | list) for item in value):
        raise _invalid("several prompts in one request are not supported")
    if not value or not all(type(item) is int and item >= 0 for item in value):
        raise _invalid("must be a string or a list of token ids, and not empty")
    return value


def _read_content(value: object) -> str:
    """Text of a message; the texts of several parts go on separate lines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise _invalid("must be a string or a list of text parts")
    for part in value:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise _invalid('only parts of the form {"type": "text", "text": "…"} are supported')
    return "\n".join(part["text"] for part in value)


def _is_empty(value: object) -> object:
    if value not in (None, [], {}):
        raise _invalid("is not supported")
    return value


Unused: TypeAlias = Annotated[Any, AfterValidator(_is_empty)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StreamOptions(_Body):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class SamplingBody(_Body):
    """The fields that both endpoints share. None stands for the default."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {"n": (1,)}

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[int, float], BeforeValidator(_read_bias)] = Field(default_factory=dict)
    stop: Annotated[list[str], BeforeValidator(_read_stops)] = Field(default_factory=list)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    speculative_depth: Annotated[int, Field(ge=0)] | None = None
    drafter: DrafterName | None = None
    user: str | None = None  # accepted: changes nothing

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(SamplingBody):
    """The body of POST /v1/completions."""

    UNSUPPORTED = {**SamplingBody.UNSUPPORTED, "best_of": (1,), "echo": (False,), "logprobs": (), "suffix": ("",)}

    prompt: Annotated[str | list[int], BeforeValidator(_read_prompt)]


class Message(_Body):
    """One message of a conversation. The last four fields are those of a reply, given back as part of the history."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_read_content)]
    name: Unused = None
    refusal: Unused = None
    annotations: Unused = None
    audio: Unused = None
    tool_calls: Unused = None
    function_call: Unused = None


class ChatBody(SamplingBody):
    """The body of POST /v1/chat/completions."""

    UNSUPPORTED = {
        **SamplingBody.UNSUPPORTED,
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "logprobs": (False,),
        "modalities": (["text"],),
        "moderation": (),
        "prediction": (),
        "reasoning_effort": (),
        "response_format": ({"type": "text"},),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "top_logprobs": (0,),
        "verbosity": ("medium",),
        "web_search_options": (),
    }

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: PositiveInt | None = None
    # Accepted: these change nothing here.
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, str] | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
