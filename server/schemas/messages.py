"""The messages of a conversation, as OpenAI has them, and what a chat template is told of them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, FailFast, Field, ValidationInfo, model_validator

from mtplx.server.excerpts import excerpt
from mtplx.server.schemas.calls import FunctionCall, ToolCall
from mtplx.server.schemas.fields import Body, Unused, invalid, refuse_unknown

_ASSISTANT = "assistant"
_TEXT_PARTS = {"text": "text"}
_PARTS_OF_ASSISTANT = {"text": "text", "refusal": "refusal"}

# Whose messages may have these fields; the others are everybody's.
_FIELDS_OF = {
    "tool_calls": _ASSISTANT,
    "function_call": _ASSISTANT,
    "refusal": _ASSISTANT,
    "reasoning_content": _ASSISTANT,
    "tool_call_id": "tool",
}
# OpenAI has renamed the role of the system, and tools were functions once; the templates of models know one name.
_ROLES_OF_TEMPLATES = {"developer": "system", "function": "tool"}


def _read_content(value: object, info: ValidationInfo) -> str | None:
    """Text of a message; the texts of several parts go on separate lines."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise invalid("must be a string or a list of text parts", "invalid_type")
    kinds = _PARTS_OF_ASSISTANT if info.data.get("role") == _ASSISTANT else _TEXT_PARTS
    return "\n".join(read_part(part, f"[{index}]", kinds) for index, part in enumerate(value))


def read_part(part: object, at: str, kinds: Mapping[str, str] = _TEXT_PARTS) -> str:
    """The text of a part; `kinds` are those that are allowed, each with the field that has its text."""
    if not isinstance(part, Mapping):
        raise invalid("must be an object", "invalid_type", at=at)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        allowed = " and ".join(f'"{name}"' for name in kinds)
        message = f"only parts of type {allowed} are supported"
        if isinstance(kind, str):
            message = f'parts of type "{excerpt(kind)}" are not supported here, {message}'
        raise invalid(message, "unsupported_value", at=f"{at}.type")
    refuse_unknown(part, ("type", kinds[kind]), at=at)
    text = part.get(kinds[kind])
    if not isinstance(text, str):
        raise invalid("must be a string", "invalid_type", at=f"{at}.{kinds[kind]}")
    return text


class TextPart(Body):
    """A part of a text, as `read_part` takes it."""

    type: Literal["text"] = Field(description="What kind of part it is.")
    text: str = Field(description="The text.")


class RefusalPart(Body):
    """A part of an assistant's message, as `read_part` takes it."""

    type: Literal["refusal"] = Field(description="What kind of part it is.")
    refusal: str = Field(description="The words of the refusal.")


class Message(Body):
    """One message of a conversation. Those of the assistant may have all that a reply has."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"] = Field(description="Who speaks.")
    content: Annotated[
        str | None,
        BeforeValidator(_read_content, json_schema_input_type=str | list[TextPart | RefusalPart] | None),
    ] = Field(
        None,
        description="What it says: a text or parts of one, which go on separate lines. Only an assistant that calls "
        "tools, or refuses, may say nothing.",
    )
    name: str | None = Field(None, description="The speaker's name, or the function's; told to the chat template.")
    tool_call_id: str | None = Field(None, description="Which call the message of a tool answers.")
    tool_calls: Annotated[list[ToolCall] | None, FailFast()] = Field(None, description="The tools it called.")
    function_call: FunctionCall | None = Field(None, description="The function it called: tool_calls' older form.")
    reasoning_content: str | None = Field(None, description="The thoughts before it; told to the chat template.")
    refusal: str | None = Field(None, description="The words of a refusal, which stand for its content.")
    annotations: Unused = Field(None, description="What a reply has none of; only an empty list is taken.")
    audio: Unused = Field(None, description="What a reply has none of; only null is taken.")

    @model_validator(mode="after")
    def _has_what_its_role_has(self) -> Self:
        for name, role in _FIELDS_OF.items():
            if role != self.role and getattr(self, name):
                raise invalid(f"belongs to messages of the role {role}", at=f".{name}")
        if self.role == "tool" and not self.tool_call_id:
            raise invalid("must name the call that is answered", "missing_required_parameter", at=".tool_call_id")
        if self.role == "function" and not self.name:
            raise invalid("must name the function", "missing_required_parameter", at=".name")
        if self.content is None and not (self.tool_calls or self.function_call or self.refusal):
            code = "invalid_type" if "content" in self.model_fields_set else "missing_required_parameter"
            raise invalid("must be a string or a list of text parts", code, at=".content")
        return self

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates know it: see `mtplx.engine.text.tokenizer.ChatMessage`."""
        calls = list(self.tool_calls or ())
        if self.function_call is not None:
            calls.append(ToolCall(id=self.function_call.name, type="function", function=self.function_call))
        said = {
            "name": self.name,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.reasoning_content,
            "tool_calls": [call.model_dump() for call in calls] or None,
        }
        return {
            "role": _ROLES_OF_TEMPLATES.get(self.role, self.role),
            "content": self.refusal or "" if self.content is None else self.content,
            **{name: value for name, value in said.items() if value is not None},
        }
