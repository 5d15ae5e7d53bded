"""What the engine and the server ask of a tokenizer. Knows no file format."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from mtplx.engine.text.abilities import ChatAbilities, Tool

# "role" and "content", a string; an assistant's may have "reasoning_content" and "tool_calls", of which each is
# {"id": …, "type": "function", "function": {"name": …, "arguments": an object}}, a tool's "tool_call_id" and "name".
ChatMessage: TypeAlias = Mapping[str, Any]


class Tokenizer(Protocol):
    """Text to tokens and back, and a conversation to text. Implementations are safe to use from several threads."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a turn or a text."""
        ...

    @property
    def special_texts(self) -> Mapping[str, str]:
        """The spellings of special tokens by what chat templates call them: "bos_token", "eos_token" and the like."""
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
        """Text of `tokens`, incomplete characters as U+FFFD. Special tokens are left out, but for those that mark calls
        of tools and thinking."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """What `token` adds to a decoded text; nothing for special tokens left out of it and for ids that stand for no
        token. Many tokens are a part of a character only. A leading space is there even where `decode` drops it at a
        text's start.
        """
        ...

    @property
    def chat_abilities(self) -> ChatAbilities:
        """What a chat with this model can have. Without a chat template: nothing but text."""
        ...

    def render_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt for an assistant's next turn, by the model's chat template, to which `template_kwargs` are
        variables. To continue the final message, which must be the assistant's, the prompt ends with its content.

        Raises InvalidRequestError when the model has no template or the template rejects the conversation.
        """
        ...
