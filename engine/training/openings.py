"""How a model is brought to write texts of its own: it is given what comes before a user's words.

With a chat template that is what the template puts there, so the model first writes a user's message and then answers
it, as in Magpie (2406.08464). Half of the messages are begun for it, as a small model left to itself seldom comes to
speak of sums, programs or texts to sum up. Without a template it is whatever begins a text. Knows tokenizers; knows no
model.
"""

from collections.abc import Sequence
from typing import Protocol

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.tokenizer import Tokenizer

_MARK = "\ue000MESSAGE\ue001"

BEGINNINGS = (  # without a space at the end: the next word brings its own
    "A shop sells", "Explain", "Write a Python function that", "Translate from German into English: Die",
    "Summarize this article:\n\nThe", "Who was", "How many", "Write a short story about",
    "Read the passage and answer the question after it.\n\nPassage: The", "Anna has", "What is the",
    "Explain this code:\n\n```python\ndef", "Give a short summary of the text below.\n\nOn", "When did", "Describe",
    "Imagine you are a", "Translate the following sentence into English: Der", "If a",
    "Answer the question from these documents.\n\nDocument 1: The", "Compare", "Write a program that", "Where is the",
    "Two friends", "Summarize: A", "Compose an email", "Why do", "Here is a list of", "A farmer", "How does",
    "Pretend to be a", "Context: In", "Extract the",
)  # fmt: skip


class Opening(Protocol):
    """`tokens` are what the model begins from; `message_tokens` how many it may write before it is asked again."""

    tokens: tuple[int, ...]
    message_tokens: int

    def prompt(self, written: Sequence[int]) -> tuple[int, ...] | None:
        """What the model goes on from once it has written so much; None if nothing can be made of it."""
        ...


class ChatOpening:
    """The template's words before a user's message, and the beginning of that.

    Raises InvalidRequestError if the model has no template.
    """

    message_tokens = 128

    def __init__(self, tokenizer: Tokenizer, beginning: str = "") -> None:
        before, found, _ = _rendered(tokenizer, _MARK).partition(_MARK)
        self._tokenizer = tokenizer
        self._begun = tokenizer.encode(beginning, add_special_tokens=False)
        self.tokens = tuple(tokenizer.encode(before + beginning, add_special_tokens=False))
        if not found or not self.tokens:
            raise InvalidRequestError(
                "the model's chat template doesn't tell where a user's message begins; give texts with --data"
            )

    def prompt(self, written: Sequence[int]) -> tuple[int, ...] | None:
        message = self._tokenizer.decode([*self._begun, *written]).replace("\ufffd", "").strip()
        if not message:
            return None
        return tuple(self._tokenizer.encode(_rendered(self._tokenizer, message), add_special_tokens=False))


class TextOpening:
    """What begins any text: the tokenizer's own token for that, or else one that ends texts."""

    message_tokens = 16

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._ends = tokenizer.eos_token_ids
        self.tokens = tuple(tokenizer.encode("")) or tuple(sorted(self._ends))[:1]
        if not self.tokens:
            raise InvalidRequestError("no token begins or ends this model's texts; give texts with --data")

    def prompt(self, written: Sequence[int]) -> tuple[int, ...] | None:
        words = tuple(token for token in written if token not in self._ends)
        return self.tokens + words if words else None


def openings_for(tokenizer: Tokenizer) -> list[Opening]:
    """To be taken in turn: of chats if the model has a template for chats, else of a text.

    Each comes twice on end, as every other answer is a greedy one. Raises InvalidRequestError for neither.
    """
    try:
        free = ChatOpening(tokenizer)
    except InvalidRequestError as reason:
        if "no chat template" not in str(reason):
            raise
        return [TextOpening(tokenizer)]
    begun = [ChatOpening(tokenizer, beginning) for beginning in BEGINNINGS]
    return [opening for each in begun for opening in (free, free, each, each)]


def _rendered(tokenizer: Tokenizer, message: str) -> str:
    return tokenizer.render_chat([{"role": "user", "content": message}])
