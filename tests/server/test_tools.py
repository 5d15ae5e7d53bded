"""Calls of tools and thoughts, as the chat endpoint words them, whole and streamed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mtplx.configs.settings import Settings
from mtplx.engine.text.abilities import infer_abilities
from mtplx.engine.types import Update
from mtplx.server.bridge import LoadedEngine, LoadEngine
from mtplx.server.chat_choices import MessageWriter, Reading
from mtplx.server.schemas.tool_choice import ToolUse
from tests.fakes import ByteTokenizer
from tests.server.conftest import Client, StartServer, events
from tests.server.engines import letter_engine
from tests.server.steppers import ScriptedStepper, completion, engine_with

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "get_time"}},
]
CALLS = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
)
THE_WEATHER = {"type": "function", "function": {"name": "get_weather"}}


class ThinkingTokenizer(ByteTokenizer):
    chat_abilities = infer_abilities("{{ messages }}", ("messages",), ("<think>", "</think>"))


def cut(text: str) -> list[str]:
    """Pieces as a model might write them."""
    return [text[start : start + 3] for start in range(0, len(text), 3)]


def thinking_engine(pieces: Sequence[str]) -> LoadEngine:
    def load(settings: Settings) -> LoadedEngine:
        engine = letter_engine()(settings)
        model = replace(engine.model, tokenizer=ThinkingTokenizer())
        return replace(engine, model=model, stepper=ScriptedStepper(pieces, completion()))

    return load


def streamed(client: Client, **fields: Any) -> dict[str, Any]:
    """The message that a stream adds up to, as clients add it up."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    chunks = events(client.chat("Hi", stream=True, **fields))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["tool_calls"]):
                assert (call["type"], call["id"][:5]) == ("function", "call_")
                message["tool_calls"].append(["", ""])
            known = message["tool_calls"][call["index"]]
            known[0] += call["function"].get("name", "")
            known[1] += call["function"]["arguments"]
    message["finish_reason"] = chunks[-1]["choices"][0]["finish_reason"]
    return message


def test_calls_are_told_and_nothing_is_said(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS), completion())))
    [choice] = client.chat("Hi", tools=TOOLS).json()["choices"]
    message = choice["message"]
    assert message["content"] is None
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "get_weather", "arguments": '{"city": "Paris"}'},
        {"name": "get_time", "arguments": "{}"},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert choice["finish_reason"] == "tool_calls"


def test_a_stream_tells_the_same_calls_piece_by_piece(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut("Well. " + CALLS), completion())))
    message = streamed(client, tools=TOOLS)
    assert message["content"] == "Well."
    assert message["tool_calls"] == [["get_weather", '{"city": "Paris"}'], ["get_time", "{}"]]
    assert message["finish_reason"] == "tool_calls"


def test_without_tools_or_with_the_choice_none_the_same_text_is_content(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS), completion())))
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        [choice] = client.chat("Hi", **fields).json()["choices"]
        assert choice["message"]["content"] == CALLS
        assert "tool_calls" not in choice["message"]
        assert choice["finish_reason"] == "stop"


def test_a_named_call_ends_with_stop_as_openai_has_it(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS), completion())))
    [choice] = client.chat("Hi", tools=TOOLS, tool_choice=THE_WEATHER).json()["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["get_weather"]
    assert choice["finish_reason"] == "stop"


def test_a_call_cut_short_ends_with_length(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS[:50]), completion(reason="length"))))
    assert client.chat("Hi", tools=TOOLS).json()["choices"][0]["finish_reason"] == "length"


def test_a_call_cut_by_a_stop_string_is_no_call_to_act_on(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS[:55]), completion(stop_reason="Paris"))))
    [choice] = client.chat("Hi", tools=TOOLS).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"city')
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("length", [4, 11, 30])
def test_the_beginning_of_a_call_that_must_be_is_no_content(start_server: StartServer, length: int) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS[:length]), completion(reason="length"))))
    [must, may] = [
        client.chat("Hi", tools=TOOLS, tool_choice=choice).json()["choices"][0]["message"]["content"]
        for choice in ("required", "auto")
    ]
    assert (must, may) == ("", CALLS[:length])


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_told_apart_from_the_answer(start_server: StartServer, stream: bool) -> None:
    client = start_server(thinking_engine(cut("<think>\nOne and one.\n</think>\n\nTwo.")))
    message = streamed(client) if stream else client.chat("Hi").json()["choices"][0]["message"]
    assert message["content"] == "Two."
    assert message["reasoning_content"] == "One and one."


@pytest.mark.parametrize("num_together", [1, 2, 5, 99])
def test_thoughts_count_by_the_token_however_many_come_at_once(num_together: int) -> None:
    pieces = ["<think>", "One", " and", " one", "</think>", "\n\n", "Two", "."]
    writer = MessageWriter(0, Reading(ThinkingTokenizer.chat_abilities, ToolUse(), is_thinking=False), None)
    for start in range(0, len(pieces), num_together):
        writer.chunks(Update("r", tuple(pieces[start : start + num_together])))
    assert writer.num_reasoning_tokens == 4  # the token that ends them is one of them


def test_a_model_that_does_not_think_has_no_thoughts_to_tell(client: Client) -> None:
    assert "reasoning_content" not in client.chat("Hi", max_tokens=3).json()["choices"][0]["message"]


def test_each_choice_has_calls_of_its_own(start_server: StartServer) -> None:
    client = start_server(engine_with(ScriptedStepper(cut(CALLS), completion())))
    choices = client.chat("Hi", tools=TOOLS, n=2).json()["choices"]
    ids = [call["id"] for choice in choices for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == len(ids) == 4


def test_calls_and_their_answers_may_be_given_back(client: Client) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "I look."},
        {"role": "tool", "tool_call_id": "c1", "content": "Noon"},
    ]
    body = {"model": "letters/a-to-h", "messages": messages, "tools": TOOLS, "max_tokens": 4}
    assert client.post("/v1/chat/completions", json=body).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_format_is_kept_to_at_any_depth(client: Client, stream: bool) -> None:
    for depth in (0, 3):
        fields = {"guided_regex": "[abc]{5}(gh){2}", "seed": 3, "speculative_depth": depth, "temperature": 1.5}
        if stream:
            said = streamed(client, **fields)["content"]
        else:
            said = client.chat("Hi", **fields).json()["choices"][0]["message"]["content"]
        assert set(said[:5]) <= set("abc")
        assert said[5:] == "ghgh"


def test_completions_keep_to_a_format_too(client: Client) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["bb", "cc"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    fields = {"prompt": "abc", "max_tokens": 40, "seed": 1}
    text = client.complete(structured_outputs={"json": schema}, **fields).json()["choices"][0]["text"]
    assert json.loads(text)["a"] in ("bb", "cc")
