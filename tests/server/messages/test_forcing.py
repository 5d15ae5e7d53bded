"""Calls that a request forces: the output is these, with arguments by the tool's schema, and nothing else."""

import json
from typing import Any

import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.grammar.compiler import GrammarCompiler
from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.text.abilities import ChatAbilities, infer_abilities
from mtplx.server.messages.forcing import forced_calls
from mtplx.server.schemas.tool_choice import ToolUse
from tests.fakes import EOS, ByteTokenizer
from tests.server.messages.reading import HERMES, HERMES_THINKING, TIME, TOOLS, WEATHER, tool

COMPILER = GrammarCompiler(ByteTokenizer(), vocab_size=EOS + 1)


def call(name: str, arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


PARIS = call("get_weather", {"city": "Paris", "days": 2})
CET = call("get_time", {"zone": "CET"})


def is_allowed(text: str, use: ToolUse, abilities: ChatAbilities = HERMES, *, is_thinking: bool = False) -> bool:
    spec = forced_calls(abilities, use, is_thinking=is_thinking)
    assert spec is not None
    return matches(text, spec)


def matches(text: str, spec: GrammarSpec) -> bool:
    grammar = COMPILER.compile(spec)
    for token in [*text.encode(), EOS]:
        if not grammar.allowed()[token]:
            return False
        grammar = grammar.after(token)
    return True


def use_of(*tools: dict[str, Any], **options: Any) -> ToolUse:
    return ToolUse(tools, must_call=True, **options)


def test_a_required_call_may_be_of_any_tool_and_several() -> None:
    use = use_of(*TOOLS)
    assert is_allowed(PARIS, use)
    assert is_allowed(CET, use)
    assert is_allowed(f"{PARIS}\n{CET}", use)
    assert not is_allowed("", use)
    assert not is_allowed("Sunny.", use)
    assert not is_allowed(call("launch", {}), use)


def test_one_call_may_be_all_there_is() -> None:
    use = use_of(*TOOLS, most_calls=1)
    assert is_allowed(PARIS, use)
    assert not is_allowed(f"{PARIS}\n{CET}", use)


def test_arguments_keep_to_the_schema_and_none_are_made_up() -> None:
    use = use_of(WEATHER)
    assert is_allowed(call("get_weather", {}), use)
    assert not is_allowed(call("get_weather", {"city": 5}), use)
    assert not is_allowed(call("get_weather", {"mood": "good"}), use)


def test_schemas_may_refer_to_their_own_definitions_and_leave_properties_open() -> None:
    definitions = {"$defs": {"place": {"type": "string"}}, "properties": {"city": {"$ref": "#/$defs/place"}}}
    for parameters, is_open in ((definitions, False), ({**definitions, "additionalProperties": True}, True)):
        use = use_of({"function": {"name": "get_weather", "parameters": {"type": "object", **parameters}}}, TIME)
        assert is_allowed(call("get_weather", {"city": "Paris"}), use)
        assert not is_allowed(call("get_weather", {"city": 5}), use)
        assert is_allowed(call("get_weather", {"mood": 5}), use) == is_open


def test_properties_that_come_from_elsewhere_are_allowed_too() -> None:
    parameters = {"type": "object", "properties": {"a": {}}, "allOf": [{"properties": {"b": {"type": "integer"}}}]}
    use = use_of({"function": {"name": "add", "parameters": parameters}})
    assert is_allowed(call("add", {"b": 1}), use)
    assert not is_allowed(call("add", {"b": "one"}), use)


def test_a_model_that_thinks_may_think_before() -> None:
    use = use_of(*TOOLS)
    assert is_allowed(PARIS, use, HERMES_THINKING)
    assert is_allowed(f"<think>\nA < b.\n</think>\n\n{PARIS}", use, HERMES_THINKING)
    assert not is_allowed(f"<think>Hm.</think>Hm.{PARIS}", use, HERMES_THINKING)
    assert is_allowed(f"Hm.\n</think>\n\n{PARIS}", use, HERMES_THINKING, is_thinking=True)
    assert not is_allowed(PARIS, use, HERMES_THINKING, is_thinking=True)


def test_nothing_is_forced_where_the_model_has_a_choice() -> None:
    assert forced_calls(HERMES, ToolUse(tuple(TOOLS)), is_thinking=False) is None


ANSWER = GrammarSpec("json_schema", '{"type": "object", "properties": {"a": {"type": "integer"}}}', "response_format")


def test_a_model_that_may_call_tools_calls_them_or_answers_in_the_format() -> None:
    spec = forced_calls(HERMES, ToolUse(tuple(TOOLS)), is_thinking=False, answer=ANSWER)
    assert spec is not None
    for text in (PARIS, f"{PARIS}\n{CET}", '{"a": 5}', '{\n  "a": 5\n}'):
        assert matches(text, spec)
    for text in ("Sunny.", '{"a": "five"}', f'{PARIS}{{"a": 5}}'):
        assert not matches(text, spec)


def test_a_model_that_must_call_tools_does_not_answer() -> None:
    spec = forced_calls(HERMES, use_of(*TOOLS), is_thinking=False, answer=ANSWER)
    assert spec is not None
    assert matches(PARIS, spec)
    assert not matches('{"a": 5}', spec)


def test_only_json_can_be_answered_beside_calls() -> None:
    with pytest.raises(InvalidRequestError, match="only JSON") as caught:
        forced_calls(HERMES, ToolUse(tuple(TOOLS)), is_thinking=False, answer=GrammarSpec("regex", "a", "guided_regex"))
    assert caught.value.field == "guided_regex"


def test_a_style_that_is_not_json_cannot_be_forced() -> None:
    mistral = infer_abilities("{{ tools }}[TOOL_CALLS]", ("tools",), ())
    with pytest.raises(InvalidRequestError, match='use the tool_choice "auto"') as caught:
        forced_calls(mistral, use_of(*TOOLS), is_thinking=False)
    assert caught.value.field == "tool_choice"


def test_a_schema_that_cannot_be_kept_to_is_blamed_on_the_tools() -> None:
    spec = forced_calls(HERMES, use_of(tool("get_weather", city="weather")), is_thinking=False)
    assert spec is not None
    with pytest.raises(InvalidRequestError, match="the tools' parameters") as caught:
        COMPILER.compile(spec)
    assert caught.value.field == "tools"
