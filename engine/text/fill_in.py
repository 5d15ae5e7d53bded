"""Filling in the middle: a prompt that asks for the text between a beginning and an end.

Models that were trained for it (Bavarian et al., 2207.14255) have special tokens for the three places. Knows the
spellings that are in use; knows no file format.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.engine.text.tokenizer import Tokenizer

# Before the beginning, before the end, before the middle: StarCoder, Qwen2.5-Coder, CodeLlama, DeepSeek-Coder, Granite.
_SPELLINGS = (
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁hole\uff5c>", "<\uff5cfim▁end\uff5c>"),  # with a full-width bar
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
)


@dataclass(frozen=True)
class FillIn:
    """The tokens that mark beginning, end and middle."""

    prefix: int
    suffix: int
    middle: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "FillIn | None":
        """Those of a tokenizer, None if it has none."""
        ids = {text: token for token, text in tokenizer.vocabulary().items()}
        for spelling in _SPELLINGS:
            if all(text in ids for text in spelling):
                return cls(*(ids[text] for text in spelling))
        return None

    def prompt(self, beginning: Sequence[int], end: Sequence[int]) -> list[int]:
        """Asks for what comes between them."""
        return [self.prefix, *beginning, self.suffix, *end, self.middle]
