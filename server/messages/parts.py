"""What a message consists of, as it comes. The pieces of a part follow each other and belong together."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class ContentText:
    text: str


@dataclass(frozen=True)
class ReasoningText:
    text: str


@dataclass(frozen=True)
class ToolCallOpened:
    """A call of the tool `name` begins, the message's `index`-th, from 0 on. Pieces of its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class ToolArguments:
    """A piece of the JSON text of the arguments of call `index`."""

    index: int
    text: str


Part: TypeAlias = ContentText | ReasoningText | ToolCallOpened | ToolArguments
