"""Calls of functions in a conversation's history."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import from_json

from mtplx.server.schemas.fields import Body, invalid


def _read_arguments(value: object) -> object:
    """The arguments as an object, which templates want; OpenAI has them as its JSON text."""
    if not isinstance(value, str):
        raise invalid("must be a string, the JSON text of an object", "invalid_type")
    try:
        arguments = from_json(value, allow_inf_nan=False) if value.strip() else {}
    except ValueError as error:
        raise invalid(f"must be the JSON text of an object: {error}") from None
    if not isinstance(arguments, dict):
        raise invalid("must be the JSON text of an object")
    return arguments


class FunctionCall(Body):
    """The call of a function."""

    name: str = Field(min_length=1, description="The function's name.")
    arguments: Annotated[dict[str, Any], BeforeValidator(_read_arguments, json_schema_input_type=str)] = Field(
        description="Its arguments: the JSON text of an object. An empty text stands for none."
    )


class ToolCall(Body):
    """The call of a tool, as a reply has it."""

    id: str = Field(description="What the answering message of the tool calls it.")
    type: Literal["function"] = Field(description="What kind of tool it is.")
    function: FunctionCall = Field(description="The function and its arguments.")

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_function(cls, fields: object) -> object:
        return only_functions(fields)


def only_functions(fields: object) -> object:
    """Refuses by name what OpenAI has beside functions, such as custom tools."""
    if isinstance(fields, Mapping) and fields.get("type", "function") != "function":
        raise invalid('only "function" is supported', "unsupported_value", at=".type")
    return fields
