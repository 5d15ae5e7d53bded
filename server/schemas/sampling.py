"""The fields that both completion endpoints share, in OpenAI's words and, beyond those, in vLLM's.

Knows which fields there are and their types. Knows no model: what depends on one (names, vocabulary, context) is
checked at admission, and so are the ranges of what sampling takes, which the engine knows. A field is supported, or
accepted because it changes nothing here, or refused by name; see `UNSUPPORTED` for those that are refused unless they
ask for what happens anyway.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from mtplx.configs.settings import AcceptanceName, DrafterName
from mtplx.engine.types import Depth
from mtplx.server.excerpts import excerpt
from mtplx.server.schemas.fields import END_OF_INTEGERS, Body, Natural, PositiveInt, invalid, refuse_unknown
from mtplx.server.schemas.formats import FormattedBody
from mtplx.server.schemas.messages import TextPart, read_part

MAX_CHOICES = 128  # as OpenAI has it
MAX_STOPS = 4
MAX_STOP_CHARS = 1024
MAX_BIASES = 1024  # as vLLM has it; OpenAI takes 300
MAX_STOP_TOKENS = 128
MAX_SALT_CHARS = 256

TokenId: TypeAlias = Natural
Priority: TypeAlias = Annotated[int, Field(gt=-END_OF_INTEGERS, lt=END_OF_INTEGERS)]


def _read_stops(value: object) -> list[str]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise invalid("must be a string or a list of them", "invalid_type")
    if len(stops) > MAX_STOPS:
        raise invalid(f"at most {MAX_STOPS} stop strings are allowed")
    if not all(stops):
        raise invalid("must not be empty")
    if any(len(stop) > MAX_STOP_CHARS for stop in stops):
        raise invalid(f"a stop string may have at most {MAX_STOP_CHARS} characters")
    return stops


def _read_bias(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping | None):
        raise invalid("must be an object that maps token ids to numbers", "invalid_type")
    if value is not None and len(value) > MAX_BIASES:
        raise invalid(f"at most {MAX_BIASES} tokens can have a bias")
    bias = {}
    for token, amount in (value or {}).items():
        if not (token.isascii() and token.isdecimal() and len(token) < len(str(END_OF_INTEGERS))):
            raise invalid(f"{excerpt(token)!r} is not a token id")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise invalid(f"the bias of token {token} must be a number", "invalid_type")
        bias[int(token)] = amount
    return bias


class Prediction(Body):
    """What the output may resemble, as `_read_prediction` takes it."""

    type: Literal["content"] = Field(description="What kind of prediction it is.")
    content: str | list[TextPart] = Field(description="The text, or its parts.")


def _read_prediction(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        raise invalid("must be an object", "invalid_type")
    if value.get("type") != "content":
        raise invalid('only predictions of type "content" are supported', "unsupported_value", at=".type")
    refuse_unknown(value, ("type", "content"))
    content = value.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid("must be a string or a list of text parts", "invalid_type", at=".content")
    return "".join(read_part(part, f".content[{index}]") for index, part in enumerate(content))


def _read_depth(value: object) -> object:
    if value is None or value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid('must be "auto" or a whole number', "invalid_type")
    if not 0 <= value < END_OF_INTEGERS:
        raise invalid("is out of range")
    return value


class StreamOptions(Body):
    """How to stream."""

    include_usage: bool = Field(False, description="Whether a chunk at the end tells the usage, and the others null.")
    include_obfuscation: Literal[False] | None = Field(
        None, description="Must be false: chunks tell their length, as they would have to here anyway."
    )


class SamplingBody(FormattedBody):
    """The fields that both endpoints share. None stands for the default."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    PROMPT_FIELD: ClassVar[str]

    model: str = Field(description="The model's name; /v1/models tells which is being served.")
    stream: bool | None = Field(None, description="Whether to reply in chunks, as the text comes into being.")
    stream_options: StreamOptions | None = Field(None, description="How to stream, if `stream` is true.")
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, description="How many choices to reply with, for each prompt if there are several; 1 if not given."
    )
    max_tokens: PositiveInt | None = Field(None, description="The most tokens to write; all that fit if not given.")
    min_tokens: Natural | None = Field(
        None,
        description="Tokens before which the text does not end, unless a format lets nothing follow; as vLLM has it.",
    )
    ignore_eos: bool | None = Field(None, description="Whether to go on past the end of the text, as vLLM has it.")
    stop_token_ids: Annotated[
        list[TokenId], BeforeValidator(lambda value: value or [], json_schema_input_type=list[TokenId] | None)
    ] = Field(
        default_factory=list, max_length=MAX_STOP_TOKENS, description="More tokens that end the text, as vLLM has it."
    )
    temperature: float | None = Field(
        None, description="From 0, which takes the likeliest token always, to 2; 1 if not given."
    )
    top_p: float | None = Field(
        None, description="Only the likeliest tokens are drawn from, as few as have this share of probability together."
    )
    top_k: Annotated[int, Field(ge=-1, lt=END_OF_INTEGERS)] | None = Field(
        None, description="Only so many of the likeliest tokens are drawn from; 0 and -1 are all. As vLLM has it."
    )
    min_p: float | None = Field(
        None, description="Only tokens with this share of the likeliest one's probability are drawn. As vLLM has it."
    )
    repetition_penalty: float | None = Field(
        None, description="Logits of tokens in prompt and output are divided by it, or multiplied if below 0. As vLLM."
    )
    presence_penalty: float | None = Field(
        None, description="From -2 to 2: what is taken from the logit of each token that the output has already."
    )
    frequency_penalty: float | None = Field(
        None, description="From -2 to 2: what is taken from a token's logit for each time that the output has it."
    )
    logit_bias: Annotated[
        dict[int, float], BeforeValidator(_read_bias, json_schema_input_type=dict[str, float] | None)
    ] = Field(default_factory=dict, description="What is added to the logits of tokens, -100 to 100, by their ids.")
    stop: Annotated[list[str], BeforeValidator(_read_stops, json_schema_input_type=str | list[str] | None)] = Field(
        default_factory=list,
        description=f"Up to {MAX_STOPS} texts, of which the first to come ends the output before it.",
    )
    seed: int | None = Field(
        None, description="The same request with the same seed gets the same text, whoever else is being served."
    )
    speculative_depth: Annotated[int | Literal["auto"] | None, BeforeValidator(_read_depth)] = Field(
        None,
        description="Tokens to draft a round; 0 decodes plainly, auto chooses by measured gain. With a depth and no "
        "drafter, the server's own drafter drafts, or auto if its own is none.",
    )
    num_draft_tokens: Annotated[int, Field(ge=0, lt=END_OF_INTEGERS)] | None = Field(
        None, description="The same, as mlx-lm calls it."
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
    prediction: Annotated[str, BeforeValidator(_read_prediction, json_schema_input_type=Prediction | None)] = Field(
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
    user: str | None = Field(None, description="Accepted: changes nothing here.")

    @model_validator(mode="after")
    def _streams_if_it_says_how(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise invalid("is allowed only when stream is true", at=".stream_options")
        return self

    @model_validator(mode="after")
    def _names_one_depth(self) -> Self:
        if len({self.speculative_depth, self.num_draft_tokens} - {None}) > 1:
            raise invalid("differs from speculative_depth; give one of them", at=".num_draft_tokens")
        return self

    @property
    def depth(self) -> Depth | None:
        """Tokens to draft a round, if the body says so."""
        return self.num_draft_tokens if self.speculative_depth is None else self.speculative_depth

    @property
    def num_choices(self) -> int:
        """Choices to be told for each prompt."""
        return self.n or 1

    @property
    def num_prompts(self) -> int:
        return 1

    @property
    def num_candidates(self) -> int:
        """Texts to be written for each prompt, of which the best are told."""
        return self.num_choices

    @property
    def candidates_field(self) -> str:
        """Which field says how many that are."""
        return "n"

    @property
    def num_logprobs(self) -> int | None:
        """How many of the likeliest tokens to score beside each token of the output, None to score none."""
        return None

    @property
    def scores_prompt(self) -> bool:
        """Whether to score the prompt's tokens too."""
        return False

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
