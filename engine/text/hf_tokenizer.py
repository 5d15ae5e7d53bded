"""A tokenizer as the transformers library reads it from a model folder.

Knows mlx-lm's wrapper around it, which adds the tokens that end a text and some models' own chat renderers.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import cast

import tokenizers
from mlx_lm.tokenizer_utils import TokenizerWrapper

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.token_bytes import from_alphabet, from_number, from_pieces
from mtplx.engine.text.tokenizer import ChatMessage

_ONE_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class HfTokenizer:
    """A Tokenizer. Its calls change nothing in the wrapped one, so any thread may use it."""

    def __init__(self, wrapped: TokenizerWrapper) -> None:
        self._wrapped = wrapped
        # The first call takes back a truncation the folder may ask for; the calls after it find nothing to change.
        wrapped.encode("")

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self._wrapped.eos_token_ids)

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
            self._wrapped.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False),
        )

    def bytes_of(self, token: int) -> bytes:
        return self._bytes.get(token, b"")

    @cached_property
    def _bytes(self) -> Mapping[int, bytes]:
        backend = getattr(self._wrapped, "backend_tokenizer", None)
        spelling = backend and _spelling(backend)
        if backend is None or spelling is None:  # parts of characters cannot be told from each other
            return {token: self.decode([token]).encode() for token in self.vocabulary()}
        special = {token for token, added in backend.get_added_tokens_decoder().items() if added.special}
        return {token: b"" if token in special else spelling(text) for token, text in self.vocabulary().items()}

    def render_chat(self, messages: Sequence[ChatMessage]) -> str:
        if not self._wrapped.has_chat_template:
            raise InvalidRequestError("the model has no chat template; send a prompt to be completed instead")
        try:
            return cast(
                str,
                self._wrapped.apply_chat_template(
                    [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
                ),
            )
        except Exception as error:  # the template is the model's own code
            raise InvalidRequestError(
                f"the model's chat template rejects these messages: {error}", field="messages"
            ) from error


def _spelling(backend: tokenizers.Tokenizer) -> Callable[[str], bytes] | None:
    """How the backend's decoder reads a token's bytes from the way it is spelled; None for an unknown decoder."""
    decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
    steps = {step["type"] for step in decoder.get("decoders", [decoder] if decoder else [])}
    if "ByteLevel" in steps:
        return from_alphabet
    if "ByteFallback" in steps:
        return lambda token: from_number(token) if _ONE_BYTE.fullmatch(token) else from_pieces(token)
    return from_pieces if "Metaspace" in steps else None
