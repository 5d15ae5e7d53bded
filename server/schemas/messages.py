"""The messages of a conversation, and the text that their content comes to."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from mtplx.server.schemas.fields import Body, Unused, invalid, refuse_unknown


def _read_content(value: object) -> str:
    """Text of a message; the texts of several parts go on separate lines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise invalid("must be a string or a list of text parts", "invalid_type")
    return "\n".join(read_part(part, f"[{index}]") for index, part in enumerate(value))


def read_part(part: object, at: str) -> str:
    if not isinstance(part, Mapping):
        raise invalid("must be an object", "invalid_type", at=at)
    if part.get("type") != "text":
        raise invalid('only parts of type "text" are supported', "unsupported_value", at=f"{at}.type")
    refuse_unknown(part, ("type", "text"), at=at)
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid("must be a string", "invalid_type", at=f"{at}.text")
    return text


class TextPart(Body):
    """A part of a text, as `read_part` takes it."""

    type: Literal["text"] = Field(description="What kind of part it is.")
    text: str = Field(description="The text.")


class Message(Body):
    """One message of a conversation. The last four fields are those of a reply, given back as part of the history."""

    role: Literal["system", "developer", "user", "assistant"] = Field(description="Who speaks.")
    content: Annotated[str, BeforeValidator(_read_content, json_schema_input_type=str | list[TextPart])] = Field(
        description="What it says: a text or parts of one, which go on separate lines."
    )
    name: Unused = None
    refusal: Unused = None
    annotations: Unused = None
    audio: Unused = None
    tool_calls: Unused = None
    function_call: Unused = None
