"""A model's text becomes content, reasoning and calls of tools, as it comes."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.engine.text.abilities import infer_abilities
from mtplx.server.messages.parser import MessageParser
from mtplx.server.messages.parts import ContentText, ToolArguments, ToolCallOpened
from tests.server.messages.reading import HERMES, HERMES_THINKING, TOOLS, joined, read

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
OTHER = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
WEATHER = ["get_weather", '{"city": "Paris", "days": 2}']
TIME = ["get_time", "{}"]


def test_a_text_without_markers_is_content_to_the_last_blank() -> None:
    text = "\n  1 < 2 <tool and {so} on.\n"
    assert read(text).content == text


def test_a_call_is_no_content() -> None:
    message = read(CALL)
    assert (message.content, message.calls) == ("", [WEATHER])


def test_calls_have_an_id_each() -> None:
    first, second = read(CALL + OTHER).ids
    assert first != second
    assert all(re.fullmatch("call_[0-9a-f]{24}", each) for each in (first, second))


@pytest.mark.parametrize(
    "text",
    [
        f"{CALL}\n{OTHER}\n",
        f"{CALL}{OTHER}",
        '<tool_call>\n[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}, '
        '{"name": "get_time", "arguments": {}}]\n</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
        '{"name": "get_time", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}}\n'
        '{"name": "get_time", "arguments": {}}}</tool',  # brackets too many, and half a marker
    ],
)
def test_calls_may_be_several(text: str) -> None:
    message = read(text)
    assert (message.content, message.calls) == ("", [WEATHER, TIME])


def test_text_around_calls_is_content_without_the_blanks_beside_them() -> None:
    message = read(f"\nI look.\n\n{CALL}\n \nAnd then\n{OTHER}\n ")
    assert (message.content, message.calls) == ("\nI look.\n\nAnd then", [WEATHER, TIME])
    assert read(f"\n{CALL}\nDone").content == "Done"


def test_without_tools_nothing_is_a_call() -> None:
    assert read(f"See: {CALL} ", tools=[]).content == f"See: {CALL} "


def test_further_calls_than_asked_for_are_left_out() -> None:
    message = read(f"{CALL}{OTHER} Done", most_calls=1)
    assert (message.content, message.calls) == ("Done", [WEATHER])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"arguments": {"city": "Paris"}, "name": "get_weather"}', '{"city": "Paris"}'),
        ('{"id": "7", "name": "get_weather", "arguments": {"city": "Paris"}}', '{"city": "Paris"}'),
        ('{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "7"}', '{"city": "Paris"}'),
        ('{ "name" :"get_weather","arguments":{ "city": "<}\\" ]"} }', '{ "city": "<}\\" ]"}'),
        ('{"name": "get_weather", "arguments": {"city": ["a", {"b": {}}]}}', '{"city": ["a", {"b": {}}]}'),
        ('{"name": "get\\u005fweather", "arguments": {}}', "{}"),
        ('{"name": "get_weather", "arguments": {}}}', "{}"),  # a bracket too many
        ('{"name": "get_weather", "arguments": {}', "{}"),  # or too few
    ],
)
def test_the_json_of_a_call_may_be_spelled_in_many_ways(text: str, arguments: str) -> None:
    text = f"<tool_call>{text}</tool_call> Done"
    for message in (read(text), read(list(text))):
        assert (message.content, message.calls) == ("Done", [["get_weather", arguments]])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call></tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>get_weather</tool_call>",
        '<tool_call>{"name": "get_weather"}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": "Paris"}</tool_call>',
        '<tool_call>{"name": "launch", "arguments": {"city": "Paris"}}</tool_call>',
        '<tool_call>{"arguments": {"city": "Paris"}, "name": "launch"}</tool_call>',
        '<tool_call>{"name": "get_weather, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_weather" </tool_call>',
        "<tool_call>{}",
        "<tool_call>",
        "<tool_c",
    ],
)
def test_what_cannot_be_read_as_a_call_of_a_tool_is_content_as_it_was(text: str) -> None:
    for pieces in (f"So: \n{text} ok", list(f"So: \n{text} ok")):
        message = read(pieces)
        assert (message.content, message.calls) == (f"So: \n{text} ok", [])
    assert read(text).content == text


def test_what_follows_a_call_within_its_markers_is_content() -> None:
    message = read('<tool_call>{"name": "get_time", "arguments": {}} I hope</tool_call>')
    assert (message.content, message.calls) == ("I hope", [TIME])


def test_a_call_that_the_end_cuts_off_keeps_what_there_is_of_its_arguments() -> None:
    assert read('<tool_call>{"name": "get_weather", "arguments": {"city": "Pa').calls == [
        ["get_weather", '{"city": "Pa']
    ]


def test_arguments_come_as_they_are_written_and_the_name_before_them() -> None:
    parser = MessageParser(HERMES, TOOLS)
    assert parser.push('<tool_call>{"name": "get_weather", "argum') == []
    opened, begun = parser.push('ents": {"ci')
    assert isinstance(opened, ToolCallOpened)
    assert (opened.name, begun) == ("get_weather", ToolArguments(0, '{"ci'))
    assert parser.push('ty": "Par') == [ToolArguments(0, 'ty": "Par')]
    assert parser.push('is"}}</tool') == [ToolArguments(0, 'is"}')]
    assert parser.push("_call>") + parser.finish() == []


def test_only_what_may_be_a_marker_is_held_back() -> None:
    parser = MessageParser(HERMES, TOOLS)
    assert parser.push("a <b") == [ContentText("a <b")]
    assert parser.push(" <tool_c") == []
    assert parser.push("ase") == [ContentText(" <tool_case")]


def test_thoughts_are_apart_and_so_are_the_blanks_around_them() -> None:
    message = read("\n<think>\nHm.\n\nYes.\n</think>\n\nParis. ")
    assert (message.reasoning, message.content) == ("Hm.\n\nYes.", "Paris. ")


def test_a_prompt_that_has_opened_the_thoughts_makes_the_text_begin_with_them() -> None:
    message = read("Hm.</think>Paris.", is_thinking=True)
    assert (message.reasoning, message.content) == ("Hm.", "Paris.")


def test_thoughts_that_do_not_end_are_thoughts() -> None:
    assert read("<think>Hm. ").reasoning == "Hm. "


def test_markers_of_calls_within_thoughts_mean_nothing() -> None:
    message = read(f"<think>{CALL}</think>{OTHER}")
    assert (message.reasoning, message.calls) == (CALL, [TIME])


def test_thoughts_come_first_or_are_none() -> None:
    assert read(f"{CALL}<think>Hm.</think>").content == "<think>Hm.</think>"
    assert read("<think>Hm.</think><think>").content == "<think>"
    for text in ("The tag <think> opens, </think> closes.", "<think>Hm.</think>Say <think> and </think>."):
        assert read(text).content == text.removeprefix("<think>Hm.</think>")


def test_whether_it_thinks_right_now_is_known() -> None:
    parser = MessageParser(HERMES_THINKING)
    assert not parser.is_thinking
    parser.push("<think>Hm")
    assert parser.is_thinking
    parser.push("</think>")
    assert not parser.is_thinking


def test_markers_that_say_nothing_are_dropped() -> None:
    abilities = infer_abilities(None, (), ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"))
    text = "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Hi!<|close|>response<|sep|>"
    message = read(text + "<|close|>message<|sep|>", abilities)
    assert (message.reasoning, message.content) == ("Hm.", "Hi!")


FRAGMENTS = [
    *(
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "\n",
        " ",
        "words",
        "<",
        "{",
        "}",
        "[",
        "]",
        ",",
        '"',
        "\\",
    ),
    *(CALL, OTHER, '{"name": "get_time", "arguments": ', '{"name": "launch", "arguments": {}}', '{"a": "b\\"}"}'),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join), st.data(), st.booleans(), st.booleans())
def test_how_a_text_is_cut_makes_no_difference(
    text: str, data: st.DataObject, is_thinking: bool, has_tools: bool
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    tools = TOOLS if has_tools else []
    whole = read(text, tools=tools, is_thinking=is_thinking)
    for cut in (pieces, list(text)):
        message = read(cut, tools=tools, is_thinking=is_thinking)
        assert replace(message, ids=[]) == replace(whole, ids=[])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join))
def test_without_markers_to_look_for_no_letter_is_changed(text: str) -> None:
    parser = MessageParser(HERMES)
    assert parser.push("Hi ") == [ContentText("Hi ")]
    assert joined([part for letter in text for part in parser.push(letter)] + parser.finish()).content == text
