"""A tokenizer as the llguidance library needs it: the bytes of every token, and how a text is usually cut."""

from collections.abc import Sequence

from llguidance import LLTokenizer, TokenizerWrapper

from mtplx.engine.text.tokenizer import Tokenizer

_LINE_BREAK = "\n"


def grammar_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> LLTokenizer:
    """The tokens that a model of `vocab_size` can give. Filling stands for no text, so that it is never allowed."""
    eos = sorted(token for token in tokenizer.eos_token_ids if token < vocab_size)
    return LLTokenizer(TokenizerWrapper(_Tokens(tokenizer, vocab_size, eos[0])), eos_token=eos)


class _Tokens:
    """What TokenizerWrapper asks for, by the names it asks for it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_id: int) -> None:
        known = {token: text for token, text in tokenizer.vocabulary().items() if token < vocab_size}
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_id
        self.bos_token_id = None
        self.tokens = [tokenizer.bytes_of(token) if token in known else b"" for token in range(vocab_size)]
        self.special_token_ids = [token for token in known if not self.tokens[token]]
        for token in self.special_token_ids:
            self.tokens[token] = known[token].encode()

    def __call__(self, text: str) -> Sequence[int]:
        """The tokens that spell `text` in the middle of a longer one, where no space is put in front."""
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        if self._spelled(tokens) == text.encode():
            return tokens
        tokens = self._tokenizer.encode(_LINE_BREAK + text, add_special_tokens=False)
        while tokens and self._spelled(tokens) != text.encode():
            tokens = tokens[1:]
        return tokens

    def _spelled(self, tokens: Sequence[int]) -> bytes:
        return b"".join(map(self._tokenizer.bytes_of, tokens))
