"""Texts read by a MessageParser, for tests."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtplx.engine.text.abilities import ChatAbilities, infer_abilities
from mtplx.server.messages.parser import MessageParser
from mtplx.server.messages.parts import ContentText, Part, ReasoningText, ToolArguments, ToolCallOpened

THINKING = ("<think>", "</think>")
HERMES = infer_abilities(None, (), ())
HERMES_THINKING = infer_abilities(None, (), THINKING)


def tool(name: str, **properties: str) -> dict[str, Any]:
    """A tool whose parameters have these types."""
    parameters = {"type": "object", "properties": {each: {"type": kind} for each, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool("get_weather", city="string", days="integer")
TIME = tool("get_time", zone="string")
TOOLS = [WEATHER, TIME]


@dataclass
class Read:
    """A whole message; each call is its name and the text of its arguments."""

    content: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def arguments(self) -> list[tuple[str, Any]]:
        return [(name, json.loads(text)) for name, text in self.calls]


def read(
    pieces: str | Iterable[str],
    abilities: ChatAbilities = HERMES_THINKING,
    tools: Sequence[dict[str, Any]] = TOOLS,
    **options: Any,
) -> Read:
    parser = MessageParser(abilities, tools, **options)
    pieces = [pieces] if isinstance(pieces, str) else pieces
    return joined([part for piece in pieces for part in parser.push(piece)] + parser.finish())


def joined(parts: Iterable[Part]) -> Read:
    message = Read()
    for part in parts:
        match part:
            case ContentText(text):
                message.content += text
            case ReasoningText(text):
                message.reasoning += text
            case ToolCallOpened(index, own_id, name):
                assert index == len(message.calls)
                message.calls.append([name, ""])
                message.ids.append(own_id)
            case ToolArguments(index, text):
                message.calls[index][1] += text
    return message
