"""Tokenizers of few tokens, some of several letters, for grammars over tokens."""

from mtplx.engine.text.gguf_tokenizer import GgufTokenizer
from mtplx.engine.text.vocabulary import BytePairs, SentencePieces, TokenType, Vocabulary
from tests.tiny_models import EOS, MERGES, SPECIAL_TOKENS, token_texts

VOCAB_SIZE = len(token_texts()) + 5  # of the logits: some rows stand for no token


def byte_pairs(special: TokenType = TokenType.CONTROL, more: tuple[str, ...] = ()) -> GgufTokenizer:
    """Bytes, "the", " the", "in", "and" and the like, special tokens, and `more`."""
    tokens = (*token_texts(), *more)
    types = [special if text in SPECIAL_TOKENS else TokenType.NORMAL for text in tokens]
    return _tokenizer(tokens, tuple(types), BytePairs(MERGES, "smollm"), EOS)


def sentence_pieces() -> GgufTokenizer:
    """Bytes and pieces. Every encoded text begins with a space of its own."""
    pieces = ["</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"the▁", "th", "he", "the", "hth", "▁the"]
    types = [TokenType.CONTROL, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * 9]
    scores = SentencePieces(tuple(float(len(piece)) for piece in pieces), add_space_prefix=True)
    return _tokenizer(tuple(pieces), tuple(types), scores, 0)


def _tokenizer(
    tokens: tuple[str, ...], types: tuple[TokenType, ...], cut: BytePairs | SentencePieces, eos: int
) -> GgufTokenizer:
    return GgufTokenizer(Vocabulary(tokens, types, cut, (), (), frozenset({eos}), {}, None))
