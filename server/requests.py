"""The request bodies of both completion endpoints, in OpenAI's words.

Knows which fields there are and their types. Knows no model: what depends on one (names, vocabulary, context) is
checked at admission, and so are the ranges of what sampling takes, which the engine knows. A field is supported, or
accepted because it changes nothing here, or refused by name; see `UNSUPPORTED` for those that are refused unless they
ask for what happens anyway.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from mtplx.configs.settings import AcceptanceName, DrafterName
from mtplx.server.excerpts import excerpt, listing

MAX_STOPS = 4
MAX_SALT_CHARS = 256

# Numbers that are counted with here end below this, as OpenAI's do; those beyond could not even be printed.
_END_OF_INTEGERS = 2**31
_MAX_ENTRIES = 16  # as OpenAI has it of metadata
Natural: TypeAlias = Annotated[int, Field(ge=0, lt=_END_OF_INTEGERS)]
PositiveInt: TypeAlias = Annotated[int, Field(ge=1, lt=_END_OF_INTEGERS)]
Priority: TypeAlias = Annotated[int, Field(gt=-_END_OF_INTEGERS, lt=_END_OF_INTEGERS)]


def _invalid(message: str, code: str = "invalid_value", *, at: str = "") -> PydanticCustomError:
    """What is wrong, in OpenAI's code for it, and `at` which place within what is being validated."""
    return PydanticCustomError("invalid", "{message}", {"message": message, "code": code, "at": at})


def _refuse_unknown(fields: Iterable[object], known: Container[Any], *, at: str = "") -> None:
    unknown = [str(name) for name in fields if name not in known]
    if unknown:
        message = f"unknown field{'s' * (len(unknown) > 1)}: {listing(unknown)}"
        raise _invalid(message, "unknown_parameter", at=f"{at}.{excerpt(unknown[0])}")


def _read_stops(value: object) -> list[str]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _invalid("must be a string or a list of them", "invalid_type")
    if len(stops) > MAX_STOPS:
        raise _invalid(f"at most {MAX_STOPS} stop strings are allowed")
    if not all(stops):
        raise _invalid("must not be empty")
    return stops


def _read_bias(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping | None):
        raise _invalid("must be an object that maps token ids to numbers", "invalid_type")
    bias = {}
    for token, amount in (value or {}).items():
        if not (token.isascii() and token.isdecimal() and len(token) < len(str(_END_OF_INTEGERS))):
            raise _invalid(f"{excerpt(token)!r} is not a token id")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise _invalid(f"the bias of token {token} must be a number", "invalid_type")
        bias[int(token)] = amount
    return bias


def _read_prompt(value: object) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if not isinstance(value, str | list):
        raise _invalid("must be a string or a list of token ids", "invalid_type")
    if not value:
        raise _invalid("must not be empty")
    if isinstance(value, str):
        return value
    kinds = set(map(type, value))
    if kinds & {str, list}:
        raise _invalid("only one prompt in a request is supported", "unsupported_value")
    if kinds != {int}:
        raise _invalid("must be a string or a list of token ids", "invalid_type")
    if min(value) < 0 or max(value) >= _END_OF_INTEGERS:
        raise _invalid("a token id is out of range")
    return value


def _read_content(value: object) -> str:
    """Text of a message; the texts of several parts go on separate lines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise _invalid("must be a string or a list of text parts", "invalid_type")
    return "\n".join(_read_part(part, f"[{index}]") for index, part in enumerate(value))


def _read_part(part: object, at: str) -> str:
    if not isinstance(part, Mapping):
        raise _invalid("must be an object", "invalid_type", at=at)
    if part.get("type") != "text":
        raise _invalid('only parts of type "text" are supported', "unsupported_value", at=f"{at}.type")
    _refuse_unknown(part, ("type", "text"), at=at)
    text = part.get("text")
    if not isinstance(text, str):
        raise _invalid("must be a string", "invalid_type", at=f"{at}.text")
    return text


def _read_prediction(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        raise _invalid("must be an object", "invalid_type")
    if value.get("type") != "content":
        raise _invalid('only predictions of type "content" are supported', "unsupported_value", at=".type")
    _refuse_unknown(value, ("type", "content"))
    content = value.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid("must be a string or a list of text parts", "invalid_type", at=".content")
    return "".join(_read_part(part, f".content[{index}]") for index, part in enumerate(content))


def _read_depth(value: object) -> object:
    if value is None or value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid('must be "auto" or a whole number', "invalid_type")
    if not 0 <= value < _END_OF_INTEGERS:
        raise _invalid("is out of range")
    return value


def _is_empty(value: object) -> object:
    if value not in (None, [], {}):
        raise _invalid("is not supported by this server", "unsupported_parameter")
    return value


def _is_short(value: object) -> object:
    if isinstance(value, Mapping) and len(value) > _MAX_ENTRIES:
        raise _invalid(f"at most {_MAX_ENTRIES} entries are allowed")
    return value


ShortMap: TypeAlias = Annotated[dict[str, str], BeforeValidator(_is_short)]
Unused: TypeAlias = Annotated[Any, AfterValidator(_is_empty)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields_only(cls, fields: object) -> object:
        # Left to pydantic, each of a million unknown fields would become a problem of its own.
        if isinstance(fields, Mapping):
            _refuse_unknown(fields, cls.model_fields)
        return fields


class StreamOptions(_Body):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class SamplingBody(_Body):
    """The fields that both endpoints share. None stands for the default."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {"n": (1,)}
    PROMPT_FIELD: ClassVar[str]

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, Field(ge=-1, lt=_END_OF_INTEGERS)] | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Annotated[dict[int, float], BeforeValidator(_read_bias)] = Field(default_factory=dict)
    stop: Annotated[list[str], BeforeValidator(_read_stops)] = Field(default_factory=list)
    seed: int | None = None
    speculative_depth: Annotated[int | Literal["auto"] | None, BeforeValidator(_read_depth)] = Field(
        None,
        description="Tokens to draft a round; 0 decodes plainly, auto chooses by measured gain. With a depth and no "
        "drafter, the server's own drafter drafts, or auto if its own is none.",
    )
    drafter: DrafterName | None = Field(
        None,
        description="Who drafts; auto chooses by measured gain. With a drafter and no depth, the depth is the server's "
        "own, or auto if that is 0.",
    )
    acceptance: AcceptanceName | None = Field(
        None,
        description="How drafts are accepted; all are exact. Under coupled, a seed fixes the text whatever is drafted. "
        "If neither request nor server says, it is rejection, but coupled with a seed where drafter or depth are auto.",
    )
    prediction: Annotated[str, BeforeValidator(_read_prediction)] = Field(
        "", description="Text that the output may resemble, to draft from, as OpenAI has it."
    )
    priority: Priority | None = Field(
        None, description="Of the requests that wait, those of the lowest number come first; 0 if not given."
    )
    cache_salt: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SALT_CHARS,
        description="A secret: what is kept of prompts for later requests serves those with the same salt alone.",
    )
    timeout_s: float | None = Field(
        None, gt=0, description="Seconds that the request may take, its wait included; the server may allow fewer."
    )
    user: str | None = None  # accepted: changes nothing

    @model_validator(mode="after")
    def _streams_if_it_says_how(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise _invalid("is allowed only when stream is true", at=".stream_options")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def output_limit_field(self) -> str:
        """Which field bounds the output."""
        return "max_tokens"

    @property
    def output_limit(self) -> int | None:
        """The most tokens to write, if the body says so."""
        limit: int | None = getattr(self, self.output_limit_field)
        return limit


class CompletionBody(SamplingBody):
    """The body of POST /v1/completions."""

    UNSUPPORTED = {**SamplingBody.UNSUPPORTED, "best_of": (1,), "echo": (False,), "logprobs": (), "suffix": ("",)}
    PROMPT_FIELD = "prompt"

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
            raise _invalid("differs from max_completion_tokens; give one of them", at=".max_tokens")
        return self

    @property
    def output_limit_field(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
