"""The body of POST /v1/completions."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from mtplx.server.schemas.fields import END_OF_INTEGERS, invalid
from mtplx.server.schemas.sampling import SamplingBody


def _read_prompt(value: object) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if not isinstance(value, str | list):
        raise invalid("must be a string or a list of token ids", "invalid_type")
    if not value:
        raise invalid("must not be empty")
    if isinstance(value, str):
        return value
    kinds = set(map(type, value))
    if kinds & {str, list}:
        raise invalid("only one prompt in a request is supported", "unsupported_value")
    if kinds != {int}:
        raise invalid("must be a string or a list of token ids", "invalid_type")
    if min(value) < 0 or max(value) >= END_OF_INTEGERS:
        raise invalid("a token id is out of range")
    return value


class CompletionBody(SamplingBody):
    """The body of POST /v1/completions."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **SamplingBody.UNSUPPORTED,
        "best_of": (1,),
        "echo": (False,),
        "logprobs": (),
        "suffix": ("",),
    }
    PROMPT_FIELD = "prompt"

    prompt: Annotated[str | list[int], BeforeValidator(_read_prompt)]
