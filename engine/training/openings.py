"""How a model is brought to write texts of its own: it is given what comes before a user's words.

With a chat template that is what the template puts there, so the model first writes a user's message and then answers
it, as in Magpie (2406.08464). Without one it is whatever begins a text. Knows tokenizers; knows no model.
"""

from collections.abc import Sequence
from typing import Protocol

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.tokenizer import Tokenizer

_MARK = "\ue000MESSAGE\ue001"


class Opening(Protocol):
    """`tokens` are what the model begins from; `message_tokens` how many it may write before it is asked again."""

    tokens: tuple[int, ...]
    message_tokens: int

    def prompt(self, written: Sequence[int]) -> tuple[int, ...] | None:
        """What the model goes on from once it has written so much; None if nothing can be made of it."""
        ...


class ChatOpening:
    """The template's words before a user's message. Raises InvalidRequestError if the model has no template."""

    message_tokens = 96

    def __init__(self, tokenizer: Tokenizer) -> None:
        before, found, _ = _rendered(tokenizer, _MARK).partition(_MARK)
        self._tokenizer = tokenizer
        self.tokens = tuple(tokenizer.encode(before, add_special_tokens=False))
        if not found or not self.tokens:
            raise InvalidRequestError(
                "the model's chat template doesn't tell where a user's message begins; give texts with --data"
            )

    def prompt(self, written: Sequence[int]) -> tuple[int, ...] | None:
        message = self._tokenizer.decode(written).replace("\ufffd", "").strip()
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


def opening_for(tokenizer: Tokenizer) -> Opening:
    """Of a chat if the model has a template for chats, else of a text. Raises InvalidRequestError for neither."""
    try:
        return ChatOpening(tokenizer)
    except InvalidRequestError as reason:
        if "no chat template" not in str(reason):
            raise
        return TextOpening(tokenizer)


def _rendered(tokenizer: Tokenizer, message: str) -> str:
    return tokenizer.render_chat([{"role": "user", "content": message}])
