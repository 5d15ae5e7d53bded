"""The tools of a chat, as OpenAI has them."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, model_validator

from mtplx.engine.text.abilities import Tool as TemplateTool
from mtplx.server.schemas.calls import only_functions
from mtplx.server.schemas.fields import Body, invalid

MAX_TOOLS = 128  # as OpenAI has it
MAX_PARAMETERS_CHARS = 65_536

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def _read_parameters(value: object) -> object:
    if isinstance(value, dict):
        if value.get("type", "object") != "object":
            raise invalid('must be the JSON schema of an object: its type is "object"', at=".type")
        if len(json.dumps(value)) > MAX_PARAMETERS_CHARS:
            raise invalid(f"must have at most {MAX_PARAMETERS_CHARS} characters as JSON")
    return value


class Function(Body):
    """A function that the model may call: the client runs it."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$", description="Its name.")
    description: str | None = Field(None, description="What it does and when to call it.")
    parameters: Annotated[dict[str, Any] | None, BeforeValidator(_read_parameters)] = Field(
        None, description="A JSON schema of the object of its arguments; there are none, if not given."
    )
    strict: bool | None = Field(
        None,
        description="Arguments of a call that tool_choice forces keep to the schema in any case, those of other calls "
        "don't need to.",
    )


class Tool(Body):
    """A tool that the model may call."""

    type: Literal["function"] = Field(description="What kind of tool it is.")
    function: Function = Field(description="The function that can be called.")

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, fields: object) -> object:
        return only_functions(fields)

    def for_template(self) -> TemplateTool:
        function = self.function
        described = {} if function.description is None else {"description": function.description}
        parameters = _NO_PARAMETERS if function.parameters is None else function.parameters
        return {"type": "function", "function": {"name": function.name, **described, "parameters": parameters}}


def _are_few(value: object) -> object:
    if isinstance(value, list) and len(value) > MAX_TOOLS:
        raise invalid(f"at most {MAX_TOOLS} tools are allowed")
    return value


def _differ(tools: list[Tool] | None) -> list[Tool] | None:
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if tool.function.name in names:
            raise invalid("is the name of another tool as well", at=f"[{index}].function.name")
        names.add(tool.function.name)
    return tools


Tools: TypeAlias = Annotated[list[Tool] | None, FailFast(), BeforeValidator(_are_few), AfterValidator(_differ)]
