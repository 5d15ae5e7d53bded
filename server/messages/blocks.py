"""The text between the markers of tool calls, read as calls. Knows no message around it.

A block gives pieces as they become certain. What cannot be read as a call of one of the tools comes back as it was.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mtplx.engine.text.abilities import Tool, ToolStyle
from mtplx.server.messages.markers import UpTo


@dataclass(frozen=True)
class CallName:
    """A call begins. `id` is the model's own, if it gives any."""

    name: str
    id: str | None = None


@dataclass(frozen=True)
class ArgumentsText:
    text: str


@dataclass(frozen=True)
class NoCall:
    """Text that is no call, as it was, markers included."""

    text: str


Piece: TypeAlias = CallName | ArgumentsText | NoCall


class Block(Protocol):
    rest: str | None  # the text after the block; None as long as it hasn't ended, and nothing is pushed once it has

    def push(self, text: str) -> list[Piece]: ...

    def finish(self) -> list[Piece]:
        """What is left where the text ends within the block."""
        ...


class ParsedBlock:
    """A Block in any style, which is read once it is whole, by the style's parser."""

    def __init__(self, style: ToolStyle, tools: Sequence[Tool]) -> None:
        self._style = style
        self._tools = tools
        self._text = UpTo(style.end)
        self.rest: str | None = None

    def push(self, text: str) -> list[Piece]:
        self.rest = self._text.push(text)
        return [] if self.rest is None else self._read(self._style.end)

    def finish(self) -> list[Piece]:
        return self._read("")

    def _read(self, end: str) -> list[Piece]:
        text = self._text.collected()
        try:
            parsed = self._style.parse(text, self._tools)
            calls = parsed if isinstance(parsed, list) else [parsed]
            return [piece for call in calls for piece in call_pieces(call, names_of(self._tools))]
        except Exception:  # foreign code that reads what a model made up
            return [NoCall(self._style.start + text + end)]


def names_of(tools: Sequence[Tool]) -> frozenset[str]:
    return frozenset(tool["function"]["name"] for tool in tools)


def call_pieces(call: Any, names: Collection[str]) -> Iterator[Piece]:
    """A whole call. Raises anything if that isn't one of a tool of these names, with an object of arguments."""
    name, arguments, own_id = call["name"], call["arguments"], call.get("id")
    if name not in names or not isinstance(arguments, dict):
        raise ValueError
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    yield CallName(name, own_id if isinstance(own_id, str) else None)
    yield ArgumentsText(text)
