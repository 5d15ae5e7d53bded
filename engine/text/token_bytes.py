"""Which bytes each token of a vocabulary stands for in a decoded text. Pure tables; knows no encoding of texts."""

from collections.abc import Collection
from functools import cache

from mtplx.engine.text.vocabulary import BytePairs, TokenType, Vocabulary

SPACE = "\u2581"  # how SentencePiece spells a space
SPECIAL = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.BYTE})


def bytes_of_tokens(vocabulary: Vocabulary, visible: Collection[str] = ()) -> list[bytes]:
    """The bytes of every token by id; control tokens have none, but for those that are to be `visible`."""
    spelling = from_alphabet if isinstance(vocabulary.cut, BytePairs) else from_pieces
    return [
        _bytes_of_special(token, kind, visible) if kind in SPECIAL else spelling(token)
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    ]


def _bytes_of_special(token: str, kind: TokenType, visible: Collection[str]) -> bytes:
    if kind == TokenType.BYTE:
        return from_number(token)
    return token.encode() if kind == TokenType.USER_DEFINED or token in visible else b""


def from_number(token: str) -> bytes:
    """The byte of a token as SentencePiece spells those of one byte: "<0x0A>"."""
    return bytes([int(token[3:5], 16)])


def from_pieces(token: str) -> bytes:
    """The bytes of a token as SentencePiece spells it."""
    return token.replace(SPACE, " ").encode()


def from_alphabet(token: str) -> bytes:
    """The bytes of a token as byte-level BPE spells it."""
    alphabet = byte_alphabet()
    if all(character in alphabet for character in token):
        return bytes(alphabet[character] for character in token)
    return token.encode()  # filling of the vocabulary, outside the alphabet


@cache
def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in byte-level BPE, as GPT-2 chose them.

    Bytes that print stand for themselves, the others, in order, for the characters from U+0100 on.
    """
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + index): byte for index, byte in enumerate(others)}
