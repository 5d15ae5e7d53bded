"""Texts and prompts from a file that the user gives. Knows file formats; knows no tokens and no model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.tokenizer import ChatMessage


@dataclass(frozen=True)
class PlainText:
    """A text to learn from as it is."""

    text: str


@dataclass(frozen=True)
class Conversation:
    """Messages for the model to answer."""

    messages: tuple[ChatMessage, ...]


def read_data(path: Path) -> list[PlainText | Conversation]:
    """What the file holds, at least one item.

    A .jsonl file has an object a line: with `text`, to learn from as it is; with `prompt`, a user's message; or with
    `messages`, a chat in OpenAI's form. Prompts and chats are answered by the model: whatever follows the last message
    of the user is left out. Any other file is one text. Raises InvalidRequestError, which names the line.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _refusal(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _refusal(f"{path}: the file is not UTF-8 text") from None
    if path.suffix != ".jsonl":
        items: list[PlainText | Conversation] = [PlainText(content)] if content.strip() else []
    else:
        lines = [(number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip()]
        items = [_item(path, number, line) for number, line in lines]
    if not items:
        raise _refusal(f"{path}: there is nothing in the file")
    return items


def _item(path: Path, number: int, line: str) -> PlainText | Conversation:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise _refusal(f"{path}, line {number}: {error}") from None
    match entry:
        case {"messages": list() as messages} if all(map(_is_message, messages)):
            asked = [index for index, message in enumerate(messages) if message["role"] == "user"]
            if asked:
                return Conversation(tuple(messages[: asked[-1] + 1]))
            raise _refusal(f"{path}, line {number}: no message is the user's")
        case {"prompt": str() as prompt} if prompt.strip():
            return Conversation(({"role": "user", "content": prompt},))
        case {"text": str() as text} if text.strip():
            return PlainText(text)
    raise _refusal(
        f"{path}, line {number}: expected 'text' or 'prompt' with a text, or 'messages' with 'role' and 'content'"
    )


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _refusal(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, field="data")
