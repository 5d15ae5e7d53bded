"""Single tokens as text, as log probabilities name them. Knows a tokenizer; knows no reply."""

from collections.abc import Sequence
from functools import cached_property

from mtplx.engine.text.detokenizer import PROMPT_TAIL, Detokenizer
from mtplx.engine.text.tokenizer import Tokenizer
from mtplx.server.schemas.replies import TokenLogprob


class TokenTexts:
    """The tokens of a tokenizer one by one, as they stand in a text. A special token is spelled, and has no bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def scored(self, token: int, logprob: float) -> TokenLogprob:
        """As the chat endpoint words it: bytes that make no character are shown as U+FFFD."""
        spelled = self._tokenizer.bytes_of(token)
        text = spelled.decode(errors="replace") or self._special(token)
        return TokenLogprob(token=text, logprob=logprob, bytes=list(spelled) if spelled else None)

    def spelled(self, token: int) -> str:
        """As the completions endpoint words it: a text, or OpenAI's "bytes:" where the bytes make no characters."""
        spelled = self._tokenizer.bytes_of(token)
        try:
            return spelled.decode() or self._special(token)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def after(self, prompt: Sequence[int]) -> Detokenizer:
        """What turns the tokens that follow into text."""
        return Detokenizer(self._tokenizer.decode, prompt[-PROMPT_TAIL:])

    def _special(self, token: int) -> str:
        return self._vocabulary.get(token, "")

    @cached_property
    def _vocabulary(self) -> dict[int, str]:
        return dict(self._tokenizer.vocabulary())
