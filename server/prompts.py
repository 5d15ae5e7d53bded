"""From a prompt's text, or a conversation, to token ids, without keeping the event loop waiting.

Knows tokenizer and chat messages; knows no request.
"""

import asyncio
from collections.abc import Callable, Sequence

from mtplx.engine.text.tokenizer import ChatMessage, Tokenizer

_LONG_CHARS = 4096  # takes milliseconds to tokenize


async def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    return await _encode(len(text), lambda: tokenizer.encode(text))


async def encode_chat(tokenizer: Tokenizer, messages: Sequence[ChatMessage]) -> list[int]:
    """Tokens of the prompt for the assistant's next turn. Raises InvalidRequestError if the template objects."""
    num_chars = sum(len(message["content"]) for message in messages)
    return await _encode(num_chars, lambda: tokenizer.encode(tokenizer.render_chat(messages), add_special_tokens=False))


async def _encode(num_chars: int, encode: Callable[[], list[int]]) -> list[int]:
    return await asyncio.to_thread(encode) if num_chars > _LONG_CHARS else encode()
