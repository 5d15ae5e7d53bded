"""A tokenizer as the transformers library reads it from a model folder.

Knows mlx-lm's wrapper around it, which adds the tokens that end a text and some models' own chat renderers. Templates
are rendered by our own means: transformers would take a request's variables for options of its own.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import tokenizers
from mlx_lm.tokenizer_utils import TokenizerWrapper
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.abilities import Tool, infer_abilities
from mtplx.engine.text.chat import ChatTemplate
from mtplx.engine.text.rendering import Renderer, render_chat
from mtplx.engine.text.token_bytes import from_alphabet, from_number, from_pieces
from mtplx.engine.text.tokenizer import ChatMessage

_ONE_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class HfTokenizer:
    """A Tokenizer. Its calls change nothing in the wrapped one, so any thread may use it."""

    def __init__(self, wrapped: TokenizerWrapper) -> None:
        self._wrapped = wrapped
        # The first call takes back a truncation the folder may ask for; the calls after it find nothing to change.
        wrapped.encode("")
        template = _template_of(wrapped)
        self._render = template.render if template else _render_by(wrapped) if wrapped.has_chat_template else None
        self.chat_abilities = infer_abilities(
            wrapped.chat_template if template else None,
            template.variables if template else ("tools",),
            wrapped.get_vocab(),
            family=wrapped.init_kwargs.get("tool_parser_type"),
        )
        self._hidden = _hidden_tokens(wrapped, self.chat_abilities.visible_tokens)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self._wrapped.eos_token_ids)

    @property
    def special_texts(self) -> dict[str, str]:
        return cast(dict[str, str], self._wrapped.special_tokens_map)

    def vocabulary(self) -> dict[int, str]:
        return {index: text for text, index in self._wrapped.get_vocab().items()}

    def fewest_tokens(self, text: str) -> int:
        return 0  # what is done before the cutting, such as stripping spaces, may be anything

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return cast(list[int], self._wrapped.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, tokens: Sequence[int]) -> str:
        # Cleaning up spaces would make a token's text depend on the tokens after it.
        return cast(
            str,
            self._wrapped.decode(
                [token for token in tokens if token not in self._hidden],
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            ),
        )

    def bytes_of(self, token: int) -> bytes:
        return self._bytes.get(token, b"")

    @cached_property
    def _bytes(self) -> Mapping[int, bytes]:
        backend = getattr(self._wrapped, "backend_tokenizer", None)
        spelling = backend and _spelling(backend)
        if backend is None or spelling is None:  # parts of characters cannot be told from each other
            return {token: self.decode([token]).encode() for token in self.vocabulary()}
        return {token: b"" if token in self._hidden else spelling(text) for token, text in self.vocabulary().items()}

    def render_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        add_generation_prompt: bool = True,
    ) -> str:
        return render_chat(
            self._render,
            self.chat_abilities,
            messages,
            tools=tools,
            template_kwargs=template_kwargs,
            continue_final_message=continue_final_message,
            add_generation_prompt=add_generation_prompt,
        )


def _hidden_tokens(wrapped: TokenizerWrapper, visible: Collection[str]) -> frozenset[int]:
    """The special tokens, which a text doesn't show, but for those that are to be visible."""
    added = wrapped.added_tokens_decoder.items()
    return frozenset(index for index, token in added if token.special and token.content not in visible)


def _render_by(wrapped: TokenizerWrapper) -> Renderer:
    """The folder's own code, or transformers'."""

    def render(messages: Sequence[ChatMessage], /, *, tools: Sequence[Tool] | None, **options: Any) -> str:
        given = options if tools is None else {**options, "tools": tools}
        try:
            text = wrapped.apply_chat_template([dict(message) for message in messages], tokenize=False, **given)
        except Exception as error:  # the model's own code
            raise InvalidRequestError(
                f"the model's chat template rejects these messages: {error}", field="messages"
            ) from error
        return cast(str, text)

    return render


def _template_of(wrapped: TokenizerWrapper) -> ChatTemplate | None:
    """The folder's template, unless code of the folder's or of mlx-lm's stands in for one."""
    source = wrapped.chat_template
    is_stock = type(wrapped._tokenizer).apply_chat_template is PreTrainedTokenizerBase.apply_chat_template
    if not isinstance(source, str) or wrapped._chat_template is not None or not is_stock:
        return None
    return ChatTemplate(source, wrapped.special_tokens_map)


def _spelling(backend: tokenizers.Tokenizer) -> Callable[[str], bytes] | None:
    """How the backend's decoder reads a token's bytes from the way it is spelled; None for an unknown decoder."""
    decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
    steps = {step["type"] for step in decoder.get("decoders", [decoder] if decoder else [])}
    if "ByteLevel" in steps:
        return from_alphabet
    if "ByteFallback" in steps:
        return lambda token: from_number(token) if _ONE_BYTE.fullmatch(token) else from_pieces(token)
    return from_pieces if "Metaspace" in steps else None
