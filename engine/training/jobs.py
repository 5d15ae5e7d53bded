"""What there is to write: for each text by its number, where the model begins.

Knows tokenizers and data; knows no model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.training.data import Conversation, PlainText
from mtplx.engine.training.openings import openings_for
from mtplx.engine.training.texts import Text

_MOST_TEXT_TOKENS = 1024  # of a plain text in one piece


@dataclass(frozen=True)
class Message:
    """The model is to write a user's message after `tokens`, of at most `most_tokens`; `prompt` makes of what it wrote
    that which it then answers, or None."""

    tokens: tuple[int, ...]
    most_tokens: int
    prompt: Callable[[Sequence[int]], tuple[int, ...] | None]


@dataclass(frozen=True)
class Answer:
    """The model is to answer this prompt."""

    prompt: tuple[int, ...]


Job: TypeAlias = Message | Answer | Text  # a text is there already
Jobs: TypeAlias = Callable[[int], Job | None]  # by number; None behind the last


def own_jobs(loaded: LoadedModel) -> Jobs:
    """The model writes everything itself, without an end. Raises InvalidRequestError if nothing begins its texts."""
    openings = openings_for(loaded.tokenizer)
    messages = [Message(opening.tokens, opening.message_tokens, opening.prompt) for opening in openings]
    return lambda index: messages[index % len(messages)]


def data_jobs(loaded: LoadedModel, items: Sequence[PlainText | Conversation]) -> Jobs:
    """These texts, and answers to these conversations. Raises InvalidRequestError for one that the template rejects."""
    jobs: list[Job] = []
    for item in items:
        match item:
            case PlainText(text):
                tokens = loaded.tokenizer.encode(text)
                jobs += [Text(tuple(tokens[start:stop]), 1) for start, stop in _spans(len(tokens), loaded)]
            case Conversation(messages):
                rendered = loaded.tokenizer.render_chat(messages)
                jobs.append(Answer(tuple(loaded.tokenizer.encode(rendered, add_special_tokens=False))))
    return lambda index: jobs[index] if index < len(jobs) else None


def _spans(num_tokens: int, loaded: LoadedModel) -> list[tuple[int, int]]:
    most = min(_MOST_TEXT_TOKENS, loaded.context_length)
    return [(start, min(start + most, num_tokens)) for start in range(0, num_tokens, most)]
