"""What a benchmark decodes: prompts from a file, or the built-in set.

Knows file formats. Knows no tokens and no model: a prompt is a conversation that a chat template has yet to render.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.tokenizer import ChatMessage

BUILT_IN = Path(__file__).with_name("prompts.jsonl")
UNSORTED = "prompts"  # the category of prompts that name none


@dataclass(frozen=True)
class Prompt:
    """A conversation to answer. The id is the only one of its kind in a file."""

    id: str
    category: str
    messages: tuple[ChatMessage, ...]


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file, at least one.

    A .jsonl file has an object a line, with the prompt as `prompt` (a text), `messages` (a conversation) or `turns`
    (user messages, of which the first counts: Spec-Bench's form, Xia et al. 2401.07851), and optionally `category` and
    `id` or `question_id`. Any other file is text with a prompt a line. Empty lines are skipped. Raises
    InvalidRequestError, which names the line, for a file that is none of this.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _refusal(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _refusal(f"{path}: the file is not UTF-8 text") from None
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = _from_json(line, number) if path.suffix == ".jsonl" else _from_text(line, str(number))
        except ValueError as error:
            raise _refusal(f"{path}, line {number}: {error}") from None
        if prompt.id in prompts:
            raise _refusal(f"{path}, line {number}: the id {prompt.id!r} is taken already")
        prompts[prompt.id] = prompt
    if not prompts:
        raise _refusal(f"{path}: there are no prompts in the file")
    return list(prompts.values())


def choose_prompts(prompts: Sequence[Prompt], categories: Sequence[str] = (), limit: int | None = None) -> list[Prompt]:
    """The first `limit` prompts of each of the categories; of all categories if none is named.

    Raises InvalidRequestError for a category that has no prompt.
    """
    by_category: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_category[prompt.category].append(prompt)
    for category in categories:
        if category not in by_category:
            raise InvalidRequestError(
                f"there are no prompts of category {category!r}; there are {', '.join(by_category)}", field="categories"
            )
    return [prompt for category in categories or by_category for prompt in by_category[category][:limit]]


def _from_text(line: str, prompt_id: str, category: str = UNSORTED) -> Prompt:
    return Prompt(prompt_id, category, ({"role": "user", "content": line},))


def _from_json(line: str, number: int) -> Prompt:
    """Raises ValueError for what is no prompt."""
    entry = json.loads(line)
    if not isinstance(entry, dict):
        raise ValueError("expected a JSON object")
    prompt_id = str(entry.get("id", entry.get("question_id", number)))
    category = str(entry.get("category", UNSORTED))
    if _is_conversation(entry.get("messages")):
        return Prompt(prompt_id, category, tuple(entry["messages"]))
    text = entry.get("prompt")
    if isinstance(entry.get("turns"), list) and entry["turns"]:
        text = entry["turns"][0]
    if not isinstance(text, str) or not text:
        raise ValueError("expected a text as 'prompt', texts as 'turns', or 'messages' with 'role' and 'content'")
    return _from_text(text, prompt_id, category)


def _is_conversation(messages: Any) -> bool:
    return isinstance(messages, list) and bool(messages) and all(map(_is_message, messages))


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _refusal(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, field="prompts")
