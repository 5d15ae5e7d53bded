"""Which tools of a chat the model may or must call, and what that and the tools come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, FailFast, Field

from mtplx.engine.text.abilities import Tool as TemplateTool
from mtplx.server.excerpts import excerpt
from mtplx.server.schemas.fields import Body, invalid, refuse_unknown
from mtplx.server.schemas.tools import MAX_TOOLS, Tool


@dataclass(frozen=True)
class ToolChoice:
    """`names` are those of the tools that are allowed; None for all."""

    mode: Literal["none", "auto", "required", "named"]
    names: tuple[str, ...] | None = None


class ToolName(Body):
    """Which function is meant."""

    name: str = Field(description="The name of a function among the tools.")


class NamedTool(Body):
    """The tool that is to be called."""

    type: Literal["function"] = Field(description="What kind of tool it is.")
    function: ToolName = Field(description="The function.")


class AllowedToolList(Body):
    """Some of the tools."""

    mode: Literal["auto", "required"] = Field(description="Whether one of them must be called.")
    tools: Annotated[list[NamedTool], FailFast()] = Field(
        min_length=1, max_length=MAX_TOOLS, description="Which of the tools."
    )


class AllowedTools(Body):
    """The tools that may be called."""

    type: Literal["allowed_tools"] = Field(description="That tools are allowed.")
    allowed_tools: AllowedToolList = Field(description="Which, and whether one of them must be called.")


def _read_choice(value: object) -> ToolChoice | None:
    if value is None:
        return None
    if value in ("none", "auto", "required"):
        return ToolChoice(value)
    if not isinstance(value, Mapping):
        raise invalid('must be "none", "auto", "required", or an object that names tools')
    match value.get("type"):
        case "function":
            return ToolChoice("named", (_read_named(value),))
        case "allowed_tools":
            refuse_unknown(value, ("type", "allowed_tools"))
            return _read_allowed(value.get("allowed_tools"), ".allowed_tools")
        case _:
            raise invalid('only "function" and "allowed_tools" are supported', "unsupported_value", at=".type")


def _read_named(value: object, at: str = "") -> str:
    """The name in {"type": "function", "function": {"name": …}}."""
    if not isinstance(value, Mapping):
        raise invalid("must be an object", "invalid_type", at=at)
    refuse_unknown(value, ("type", "function"), at=at)
    if value.get("type") != "function":
        raise invalid('only "function" is supported', "unsupported_value", at=f"{at}.type")
    function = value.get("function")
    if not isinstance(function, Mapping):
        raise invalid("must be an object", "invalid_type", at=f"{at}.function")
    refuse_unknown(function, ("name",), at=f"{at}.function")
    name = function.get("name")
    if not isinstance(name, str):
        raise invalid("must be a string", "invalid_type", at=f"{at}.function.name")
    return name


def _read_allowed(value: object, at: str) -> ToolChoice:
    if not isinstance(value, Mapping):
        raise invalid("must be an object", "invalid_type", at=at)
    refuse_unknown(value, ("mode", "tools"), at=at)
    mode, tools = value.get("mode"), value.get("tools")
    if mode not in ("auto", "required"):
        raise invalid('must be "auto" or "required"', at=f"{at}.mode")
    if not isinstance(tools, list) or not 0 < len(tools) <= MAX_TOOLS:
        raise invalid(f"must be a list of 1 to {MAX_TOOLS} tools", at=f"{at}.tools")
    names = [_read_named(tool, f"{at}.tools[{index}]") for index, tool in enumerate(tools)]
    return ToolChoice(mode, tuple(names))


ChosenTools: TypeAlias = Annotated[
    ToolChoice | None,
    BeforeValidator(
        _read_choice, json_schema_input_type=Literal["none", "auto", "required"] | NamedTool | AllowedTools | None
    ),
]


@dataclass(frozen=True)
class ToolUse:
    """What the model is told of tools, and what of calls is expected of it.

    `offered` are the tools it may call, as templates know them. With `must_call` it has to, and with `is_named` it has
    no choice which. `most_calls` is None where there is no limit.
    """

    offered: tuple[TemplateTool, ...] = ()
    must_call: bool = False
    is_named: bool = False
    most_calls: int | None = None


def tool_use(tools: Sequence[Tool], choice: ToolChoice | None, parallel_tool_calls: bool | None) -> ToolUse:
    """What these three fields of a body come to. Raises at tool_choice if it asks for tools that aren't there."""
    choice = choice or ToolChoice("auto")
    by_name = {tool.function.name: tool for tool in tools}
    names = tuple(by_name) if choice.names is None else choice.names
    if unknown := [name for name in names if name not in by_name]:
        raise invalid(f"there is no tool {excerpt(unknown[0])!r} in tools", at=".tool_choice")
    if choice.mode == "required" and not tools:
        raise invalid("is allowed only with tools", at=".tool_choice")
    if choice.mode == "none" or not tools:
        return ToolUse()
    must_call = choice.mode in ("required", "named")
    # A model that is made to call tools knows no end, so that it calls one unless the request wants several.
    is_one = choice.mode == "named" or parallel_tool_calls is False or (must_call and parallel_tool_calls is None)
    return ToolUse(
        offered=tuple(by_name[name].for_template() for name in dict.fromkeys(names)),
        must_call=must_call,
        is_named=choice.mode == "named",
        most_calls=1 if is_one else None,
    )
