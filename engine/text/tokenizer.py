"""What the engine and the server ask of a tokenizer. Knows no file format."""

from collections.abc import Mapping, Sequence
from typing import Protocol

ChatMessage = Mapping[str, str]  # "role" and "content"


class Tokenizer(Protocol):
    """Text to tokens and back, and a conversation to text. Implementations are safe to use from several threads."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a turn or a text."""
        ...

    def vocabulary(self) -> Mapping[int, str]:
        """The tokens by id, spelled as model files spell them, special ones included. Filling is left out: ids that
        stand for no text."""
        ...

    def fewest_tokens(self, text: str) -> int:
        """A number of tokens that `encode` gives at least, found without encoding; 0 where nothing is known."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Tokens of `text`. Special tokens spelled out in the text count as such; `add_special_tokens` lets the
        tokenizer add its own (a beginning-of-text token, say), which a rendered chat must not get twice."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special tokens left out, incomplete characters as U+FFFD."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """What `token` adds to a decoded text; nothing for special tokens and for ids that stand for no token. Many
        tokens are a part of a character only. A leading space is there even where `decode` drops it at a text's start.
        """
        ...

    def render_chat(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt for an assistant's next turn, by the model's chat template.

        Raises InvalidRequestError when the model has no template or the template rejects the conversation.
        """
        ...
