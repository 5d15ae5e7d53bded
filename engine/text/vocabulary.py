"""A tokenizer's data: its tokens, and how a text is to be cut into them. Knows no file format; cuts nothing itself."""

from dataclasses import dataclass
from enum import IntEnum


class TokenType(IntEnum):
    """What a token stands for, numbered as in GGUF."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class BytePairs:
    """Byte-level BPE: `merges` in order of preference, each of two tokens spelled in GPT-2's alphabet of bytes.

    `pre_tokenizer` is one of the names in `mtplx.engine.text.pre_tokenizers`.
    """

    merges: tuple[tuple[str, str], ...]
    pre_tokenizer: str


@dataclass(frozen=True)
class SentencePieces:
    """SentencePiece's BPE: of neighbours that form a token, those with the highest score merge first.

    Spaces are spelled U+2581; characters without a token are spelled in tokens of one byte.
    """

    scores: tuple[float, ...]
    add_space_prefix: bool


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, each with its type; `starts_with` and `ends_with` are added around an encoded text.

    `special_texts` are the tokens a chat template may name, such as "bos_token".
    """

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    cut: BytePairs | SentencePieces
    starts_with: tuple[int, ...]
    ends_with: tuple[int, ...]
    eos_token_ids: frozenset[int]
    special_texts: dict[str, str]
    chat_template: str | None
