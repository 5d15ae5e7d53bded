"""A model and a tokenizer without weights, small enough to enumerate.

`TabularTarget` looks its logits up by the last two tokens; `ByteTokenizer` has a token for each byte.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from mtplx.engine.cache import check_commit
from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.models.target import Rows
from mtplx.engine.text.abilities import Tool, infer_abilities
from mtplx.engine.text.rendering import render_chat
from mtplx.engine.text.tokenizer import ChatMessage
from mtplx.engine.types import Logits

EOS = 256


class TabularCache:
    """Remembers tokens, and counts them strictly."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.num_committed = 0

    @property
    def num_uncommitted(self) -> int:
        return len(self.tokens) - self.num_committed

    def commit(self, num_rows: int) -> None:
        check_commit(num_rows, self.num_uncommitted)
        self.num_committed += num_rows
        del self.tokens[self.num_committed :]

    def rollback(self) -> None:
        self.commit(0)


class TabularTarget:
    """Logits [V] as a fixed random function of the last two tokens, of standard deviation `sharpness`."""

    way: Literal["rows"] = "rows"

    def __init__(self, vocab_size: int = 8, seed: int = 0, sharpness: float = 1.5) -> None:
        self.vocab_size = vocab_size
        self.num_forwards = 0
        self._seed = seed
        self._sharpness = sharpness

    def new_cache(self) -> TabularCache:
        return TabularCache()

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        self.num_forwards += 1
        return [self._forward(rows) for rows in batch]

    def _forward(self, rows: Rows) -> Logits:
        assert isinstance(rows.cache, TabularCache)
        assert rows.tokens
        tokens = rows.cache.tokens
        tokens += rows.tokens
        ends = range(len(tokens) - rows.num_logits + 1, len(tokens) + 1)
        logits = [self.logits(tokens[:end]) for end in ends]
        return np.array(logits, dtype=np.float32).reshape(rows.num_logits, self.vocab_size)

    def logits(self, context: Sequence[int]) -> Logits:
        """Logits [V] after `context`."""
        random = np.random.default_rng([self._seed, *context[-2:]])
        return (self._sharpness * random.standard_normal(self.vocab_size)).astype(np.float32)


class ByteTokenizer:
    """One token a byte, and one that ends the text."""

    eos_token_ids = frozenset({EOS})
    special_texts: Mapping[str, str] = {"eos_token": "<end>"}
    chat_abilities = infer_abilities(None, (), ())

    def vocabulary(self) -> dict[int, str]:
        return {byte: chr(byte) for byte in range(256)} | {EOS: "<end>"}

    def fewest_tokens(self, text: str) -> int:
        return len(text.encode())

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token != EOS).decode(errors="replace")

    def bytes_of(self, token: int) -> bytes:
        return bytes([token]) if token < EOS else b""

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
            _render_plainly,
            self.chat_abilities,
            messages,
            tools=tools,
            template_kwargs=template_kwargs,
            continue_final_message=continue_final_message,
            add_generation_prompt=add_generation_prompt,
        )


def _render_plainly(
    messages: Sequence[ChatMessage], *, tools: Sequence[Tool] | None, add_generation_prompt: bool, **variables: Any
) -> str:
    if not messages:
        raise InvalidRequestError("messages must not be empty", field="messages")
    turns = "".join(f"<{message['role']}>{message['content']}\n" for message in messages)
    return turns + "<assistant>" * add_generation_prompt
