"""From a prompt's text, or a conversation, to token ids, without keeping the event loop waiting.

Knows tokenizer, context and chat messages; knows no request.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mtplx.engine.errors import ContextLengthError, InvalidRequestError
from mtplx.engine.text.abilities import Tool
from mtplx.engine.text.tokenizer import ChatMessage
from mtplx.server.bridge import ServedModel

Encoded = TypeVar("Encoded")

_LONG_CHARS = 4096  # takes milliseconds to tokenize


async def encode_text(model: ServedModel, text: str) -> list[int]:
    """Tokens of a prompt. Raises ContextLengthError if it is too long whatever its tokens are."""

    def encode() -> list[int]:
        _check_fits(model, text, "prompt")
        return model.loaded.tokenizer.encode(text)

    return await _encode(len(text), encode)


async def encode_fill_in(model: ServedModel, beginning: str | Sequence[int], end: str) -> list[int]:
    """Tokens that ask for the text between two others. Raises InvalidRequestError if the model cannot do it."""
    fill_in = model.fill_in
    if fill_in is None:
        raise InvalidRequestError(
            "this model has no tokens for filling in the middle; leave the suffix out", field="suffix"
        )
    tokens = await _encode_part(model, beginning, "prompt") if isinstance(beginning, str) else beginning
    return fill_in.prompt(tokens, await _encode_part(model, end, "suffix"))


@dataclass(frozen=True)
class ChatPrompt:
    """The tokens of a prompt for the assistant's turn, and whether it ends within a thought, not yet ended."""

    tokens: Sequence[int]
    is_thinking: bool


async def encode_chat(
    model: ServedModel,
    messages: Sequence[ChatMessage],
    *,
    tools: Sequence[Tool] = (),
    template_kwargs: Mapping[str, Any] | None = None,
    continue_final_message: bool = False,
) -> ChatPrompt:
    """The prompt for the assistant's next turn, or for the rest of its last one. Raises ContextLengthError likewise, or
    InvalidRequestError if the template objects."""
    tokenizer = model.loaded.tokenizer

    def encode() -> ChatPrompt:
        text = tokenizer.render_chat(
            messages,
            tools=tools,
            template_kwargs=template_kwargs,
            continue_final_message=continue_final_message,
        )
        _check_fits(model, text, "messages")
        tokens = tokenizer.encode(text, add_special_tokens=False)
        continued = messages[-1]["content"] if continue_final_message else ""
        return ChatPrompt(tokens, tokenizer.chat_abilities.begins_thinking(text, continued=continued))

    return await _encode(len(str(messages)) + len(str(tools)), encode)


async def encode_prediction(model: ServedModel, text: str) -> list[int]:
    """Tokens of text that the output may resemble, none for none. Raises ContextLengthError likewise."""
    return await _encode_part(model, text, "prediction") if text else []


async def _encode_part(model: ServedModel, text: str, field: str) -> list[int]:
    """Tokens of a text that does not begin the prompt."""

    def encode() -> list[int]:
        _check_fits(model, text, field)
        return model.loaded.tokenizer.encode(text, add_special_tokens=False)

    return await _encode(len(text), encode)


def _check_fits(model: ServedModel, text: str, field: str) -> None:
    """Refuse without tokenizing what would take long to tokenize and then not fit."""
    kind = field if field in ("prediction", "suffix") else "prompt"
    num_tokens, most = model.loaded.tokenizer.fewest_tokens(text), model.limits.context_length
    if num_tokens >= most:
        raise ContextLengthError(
            f"This model's maximum context length is {most} tokens, of which output needs at least one, but the {kind} "
            f"alone has {num_tokens} or more; shorten it",
            field=field,
        )


async def _encode(num_chars: int, encode: Callable[[], Encoded]) -> Encoded:
    if num_chars > _LONG_CHARS:
        return await asyncio.to_thread(encode)
    await asyncio.sleep(0)  # others have their turn between many short ones
    return encode()
