"""Each family of tool calls that mlx-lm can read: what it is known by, and parallel calls in it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.engine.text.abilities import ChatAbilities, infer_abilities
from tests.server.messages.reading import read

# The template's words by which a family is known, and two calls in it.
FAMILIES = {
    "json_tools": (
        "<tool_call>{{ tool_call.name }}",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_time", "arguments": {"zone": "CET"}}\n</tool_call>',
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n<parameter=zone>\nCET\n</parameter>\n</function>\n"
        "</tool_call>",
    ),
    "glm47": (
        "<tool_call><arg_key>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key>"
        "<arg_value>2</arg_value></tool_call><tool_call>get_time<arg_key>zone</arg_key><arg_value>CET</arg_value>"
        "</tool_call>",
    ),
    "longcat": (
        "<longcat_tool_call>",
        "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n"
        "<longcat_arg_value>Paris</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n"
        "<longcat_arg_value>2</longcat_arg_value>\n</longcat_tool_call>\n<longcat_tool_call>get_time\n"
        "<longcat_arg_key>zone</longcat_arg_key>\n<longcat_arg_value>CET</longcat_arg_value>\n</longcat_tool_call>",
    ),
    "minimax_m2": (
        "<minimax:tool_call>",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="get_time">\n'
        '<parameter name="zone">CET</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
    "mistral": (
        "[TOOL_CALLS]",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}[TOOL_CALLS]get_time[ARGS]{"zone": "CET"}',
    ),
    "kimi_k2": (
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Paris", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.get_time:1'
        '<|tool_call_argument_begin|>{"zone": "CET"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    "pythonic": (
        "<|tool_call_start|>",
        '<|tool_call_start|>[get_weather(city="Paris", days=2), get_time(zone="CET")]<|tool_call_end|>',
    ),
    "function_gemma": (
        "<start_function_call>",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call>"
        "<start_function_call>call:get_time{zone:<escape>CET<escape>}<end_function_call>",
    ),
    "gemma4": (
        "<|tool_call> <tool_call|>",
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>'
        '<|tool_call>call:get_time{zone:<|"|>CET<|"|>}<tool_call|>',
    ),
    "minicpm5": (
        '<function name="<param name="',
        '<function name="get_weather"><param name="city">Paris</param><param name="days">2</param></function>\n'
        '<function name="get_time"><param name="zone">CET</param></function>',
    ),
    "muse_spark": (
        "<atem:function_calls>",
        '<atem:function_calls><atem:invoke name="get_weather"><atem:parameter name="city">Paris</atem:parameter>'
        '<atem:parameter name="days">2</atem:parameter></atem:invoke><atem:invoke name="get_time">'
        '<atem:parameter name="zone">CET</atem:parameter></atem:invoke></atem:function_calls>',
    ),
}
XTML_TOKENS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
KIMI_K3 = (
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
    '<|open|>argument key="days" type="integer"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>'
    '<|open|>call tool="get_time" index="2"<|sep|><|open|>argument key="zone" type="string"<|sep|>CET'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)
CALLS = [("get_weather", {"city": "Paris", "days": 2}), ("get_time", {"zone": "CET"})]


def abilities_of(family: str) -> ChatAbilities:
    return infer_abilities("{{ tools }}" + FAMILIES[family][0], {"tools"}, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_tells_its_family_and_parallel_calls_are_read(family: str) -> None:
    abilities = abilities_of(family)
    assert (abilities.tools.name, abilities.describes_tools) == (family, True)
    message = read("I look.\n" + FAMILIES[family][1], abilities)
    assert (message.content, message.arguments()) == ("I look.", CALLS)


def test_kimi_k3_is_known_by_its_tokens() -> None:
    abilities = infer_abilities("{{ tools }}", {"tools"}, XTML_TOKENS)
    assert abilities.tools.name == "kimi_k3"
    assert read(KIMI_K3, abilities).arguments() == CALLS
    assert abilities.visible_tokens == {"<|open|>", "<|close|>", "<|sep|>"}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_how_the_text_is_cut_makes_no_difference(family: str, data: st.DataObject) -> None:
    text = "I look.\n" + FAMILIES[family][1]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    message = read(pieces, abilities_of(family))
    assert (message.content, message.arguments()) == ("I look.", CALLS)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"json_tools"}))
@pytest.mark.parametrize("within", ["", "nonsense {]", "launch<arg_key>a</arg_key>"])
def test_what_cannot_be_read_is_content_as_it_was(family: str, within: str) -> None:
    style = abilities_of(family).tools
    text = f"So: {style.start}{within}{style.end}"
    message = read(text, abilities_of(family))
    assert (message.content, message.calls) == (text, [])


@pytest.mark.parametrize("family", ["kimi_k2", "mistral"])
def test_a_models_own_ids_are_kept(family: str) -> None:
    texts = {
        "kimi_k2": FAMILIES["kimi_k2"][1],
        "mistral": '[TOOL_CALLS][{"name": "get_time", "arguments": {}, "id": "functions.get_weather:0"}]',
    }
    assert read(texts[family], abilities_of(family)).ids[0] == "functions.get_weather:0"


def test_a_template_that_shows_calls_in_tags_without_more_writes_them_as_json() -> None:
    abilities = infer_abilities("{{ tools }}<tool_call>{{ call | tojson }}", {"tools"}, ())
    assert (abilities.tools.is_json, abilities.describes_tools) == (True, True)


def test_special_tokens_that_calls_are_made_of_are_to_be_seen() -> None:
    known = ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<eos>")
    assert infer_abilities("{{ tools }}<|tool_call><tool_call|>", {"tools"}, known).visible_tokens == set(known[:5])


@pytest.mark.parametrize(
    ("template", "variables"), [(None, ()), ("{{ messages }}", ("messages",)), ("[TOOL_CALLS]", ()), ("", ("tools",))]
)
def test_where_the_template_has_no_tools_or_an_unknown_style_calls_are_json(
    template: str | None, variables: tuple[str, ...]
) -> None:
    abilities = infer_abilities(template, variables, ())
    assert not abilities.describes_tools
    assert abilities.tools.is_json


@pytest.mark.parametrize(
    ("prompt", "begins"), [("<assistant><think>\n", True), ("<think>\n\n</think>\n", False), ("<assistant>", False)]
)
def test_whether_a_prompt_has_opened_the_thoughts_is_seen_at_its_end(prompt: str, begins: bool) -> None:
    assert infer_abilities(None, (), ("<think>", "</think>")).begins_thinking(prompt) == begins
    assert not infer_abilities(None, (), ()).begins_thinking(prompt)


@pytest.mark.parametrize(
    ("continued", "begins"), [("<think>So", True), ("<think>So</think>Yes", False), ("Yes", False), ("", False)]
)
def test_a_message_to_continue_may_end_within_thoughts(continued: str, begins: bool) -> None:
    thinking = infer_abilities(None, (), ("<think>", "</think>"))
    assert thinking.begins_thinking(f"<think> is a tag{continued}", continued=continued) == begins
