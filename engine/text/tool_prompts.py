"""Tools for models whose chat template knows none: described, called and answered in plain messages.

The form is that of the Hermes models (https://github.com/NousResearch/Hermes-Function-Calling), which many others were
trained on, SmolLM2 among them: tools as JSON in the system's message, calls between <tool_call> and </tool_call>,
results between <tool_response> and </tool_response> in the user's turn.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mtplx.engine.text.abilities import Tool
from mtplx.engine.text.tokenizer import ChatMessage


def with_tools_in_words(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[ChatMessage]:
    """The conversation with these tools, none for none, such that it has system, user and assistant alone, and text
    alone."""
    plain = _turns(messages)
    if not tools:
        return plain
    description = _describe(tools)
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{description}"}, *plain[1:]]
    return [{"role": "system", "content": description}, *plain]


def _describe(tools: Sequence[Tool]) -> str:
    listed = "\n".join(_json(tool) for tool in tools)
    call = '<tool_call>\n{"name": "the function\'s name", "arguments": {"a parameter": "its value"}}\n</tool_call>'
    return (
        "You can call functions to answer. These are the functions, as JSON, with JSON schemas for their parameters:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        f"To call a function, write its name and its arguments as JSON within <tool_call> tags, like this:\n{call}\n"
        "Each call gets tags of its own. If no function is needed, answer in words instead."
    )


def _in_words(message: ChatMessage) -> ChatMessage:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [message["content"]] * bool(message["content"]) + [_call(call["function"]) for call in calls]
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**kept, "content": "\n".join(texts)}


def _call(function: Mapping[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{_json(call)}\n</tool_call>"


def _turns(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Results go into one turn with each other and with what the user says next: many templates let user and assistant
    alternate only."""
    turns: list[tuple[ChatMessage, list[str]]] = []  # each with its texts, which are joined once
    follows_result = False
    for message in messages:
        turn = _in_words(message)
        if follows_result and turn["role"] == "user":
            turns[-1][1].append(turn["content"])
        else:
            turns.append((turn, [turn["content"]]))
        follows_result = message["role"] == "tool"
    return [{**turn, "content": "\n".join(texts)} for turn, texts in turns]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
