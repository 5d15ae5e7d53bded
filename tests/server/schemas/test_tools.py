"""Tools, which of them may be called, and what that comes to."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from mtplx.server.schemas.tool_choice import ChosenTools, ToolUse, tool_use
from mtplx.server.schemas.tools import MAX_PARAMETERS_CHARS, MAX_TOOLS, Tools

NO_PARAMETERS = {"type": "object", "properties": {}}
TOOLS: TypeAdapter[Any] = TypeAdapter(Tools)
CHOICE: TypeAdapter[Any] = TypeAdapter(ChosenTools)


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


A, B = (named(name, parameters=NO_PARAMETERS) for name in "ab")


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        (None, ToolUse((A, B))),
        ("auto", ToolUse((A, B))),
        ("none", ToolUse()),
        ("required", ToolUse((A, B), must_call=True, most_calls=1)),
        (named("b"), ToolUse((B,), must_call=True, is_named=True, most_calls=1)),
        (allowed("auto", "b"), ToolUse((B,))),
        (allowed("required", "b", "a", "b"), ToolUse((B, A), must_call=True, most_calls=1)),
    ],
)
def test_a_choice_says_which_tools_are_offered_and_whether_they_must_be_called(choice: Any, use: ToolUse) -> None:
    tools = TOOLS.validate_python([named("a"), named("b", strict=True)])
    assert tool_use(tools, CHOICE.validate_python(choice), None) == use


def test_without_parallel_calls_there_is_one_at_most() -> None:
    tools = TOOLS.validate_python([named("a")])
    assert [tool_use(tools, None, parallel).most_calls for parallel in (None, True, False)] == [None, None, 1]


def test_a_model_that_must_call_calls_one_tool_unless_several_are_wanted() -> None:
    tools = TOOLS.validate_python([named("a"), named("b")])
    required = CHOICE.validate_python("required")
    assert [tool_use(tools, required, parallel).most_calls for parallel in (None, True, False)] == [1, None, 1]


def test_without_tools_none_are_used() -> None:
    assert tool_use([], CHOICE.validate_python("auto"), None) == ToolUse()


def test_templates_know_what_a_tool_says() -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    (tool,) = TOOLS.validate_python([named("a", description="Adds.", parameters=parameters, strict=True)])
    assert tool.for_template() == named("a", description="Adds.", parameters=parameters)


def problem(kind: TypeAdapter[Any], value: Any) -> tuple[str, str]:
    """Where the problem is, and what it is."""
    with pytest.raises(ValidationError) as caught:
        kind.validate_python(value)
    error = caught.value.errors()[0]
    return ".".join(map(str, error["loc"])) + error.get("ctx", {}).get("at", ""), error["msg"]


@pytest.mark.parametrize(
    ("tools", "at"),
    [
        ([{}], "0.type"),
        ([{"type": "function"}], "0.function"),
        ([{"type": "custom", "custom": {"name": "a"}}], "0.type"),
        ([named("a b")], "0.function.name"),
        ([named("a" * 65)], "0.function.name"),
        ([named("a", parameters=[])], "0.function.parameters"),
        ([named("a", parameters={"type": "string"})], "0.function.parameters.type"),
        ([named("a", parameters={"$comment": "x" * MAX_PARAMETERS_CHARS})], "0.function.parameters"),
        ([named("a", mood="good")], "0.function.mood"),
        ([named("a"), named("a")], "[1].function.name"),
        ([named(f"a{index}") for index in range(MAX_TOOLS + 1)], ""),
    ],
)
def test_a_tool_that_is_none_is_refused_where_it_is_wrong(tools: Any, at: str) -> None:
    assert problem(TOOLS, tools)[0] == at


@pytest.mark.parametrize(
    ("choice", "at"),
    [
        ("any", ""),
        (5, ""),
        ({"type": "custom"}, ".type"),
        ({"type": "function"}, ".function"),
        ({"type": "function", "name": "a"}, ".name"),
        ({"type": "function", "function": {"name": 5}}, ".function.name"),
        ({"type": "allowed_tools"}, ".allowed_tools"),
        (allowed("any", "a"), ".allowed_tools.mode"),
        (allowed("auto"), ".allowed_tools.tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{}]}}, ".allowed_tools.tools[0].type"),
    ],
)
def test_a_choice_that_is_none_is_refused_where_it_is_wrong(choice: Any, at: str) -> None:
    assert problem(CHOICE, choice)[0] == at


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("required", "allowed only with tools"),
        (named("c"), "there is no tool 'c' in tools"),
        (allowed("auto", "c"), "there is no tool 'c' in tools"),
    ],
)
def test_a_choice_of_tools_that_are_not_there_is_refused(choice: Any, complaint: str) -> None:
    tools = TOOLS.validate_python([] if choice == "required" else [named("a")])
    with pytest.raises(PydanticCustomError, match=complaint):
        tool_use(tools, CHOICE.validate_python(choice), None)
