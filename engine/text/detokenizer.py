"""Text from tokens as they come, never half a character.

Knows that the end of a decoded text may change with the next token. Knows no vocabulary: it only calls `decode`.
"""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
# An unfinished UTF-8 character has at most three bytes, and a decoder shows each of them as one U+FFFD at most.
MAX_UNFINISHED = 3
MAX_PENDING = 8
PROMPT_TAIL = 8  # tokens of a prompt: enough for a character or a word that goes on in the output
NUM_RECENT = 4


class Detokenizer:
    """Turns one sequence's tokens into pieces of text whose concatenation is the text of all tokens.

    `decode` gives the text of a list of tokens, bytes that make no character as U+FFFD. `prompt_tail` are the tokens
    just before the first one pushed, a few are enough: a decoder may drop a text's leading space, and a character may
    begin in the prompt and end in the output. Text of the prompt itself is never returned.

    Only a window of recent tokens is decoded at each step, so the cost per token doesn't grow with the text. The window
    is `context`, whose text is out already, and `pending`, of which something is held back.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt_tail: Sequence[int] = ()) -> None:
        self._decode = decode
        self._context = list(prompt_tail)
        self._pending: list[int] = []
        self._shown = decode(self._context)  # the part of the window's text that is out

    def push(self, token: int) -> str:
        """The text that `token` makes certain; often empty while a character is unfinished."""
        self._pending.append(token)
        text = self._decode(self._context + self._pending)
        if not text.endswith(REPLACEMENT):
            return self._show_all(text)
        if not text.startswith(self._shown):
            # Some decoders spell all bytes in a row as U+FFFD, finished characters too, while one is unfinished.
            return ""
        certain = _certain_part(text)
        piece = certain[len(self._shown) :]
        self._shown += piece
        if len(self._pending) > MAX_PENDING:
            self._shorten(held=text[len(self._shown) :])
        return piece

    def flush(self) -> str:
        """What was held back, unfinished characters as U+FFFD. Push nothing after it."""
        text = self._decode(self._context + self._pending)
        return text[len(self._shown) :] if text.startswith(self._shown) else REPLACEMENT

    def _show_all(self, text: str) -> str:
        # Where the text has changed, a character is finished that the prompt began.
        shown = self._shown if text.startswith(self._shown) else self._shown.rstrip(REPLACEMENT)
        piece = text[len(shown) :]
        if piece:
            self._context, self._pending = self._pending, []
            self._shown = self._decode(self._context)
        elif len(self._pending) > MAX_PENDING:
            self._shorten(held="")
        return piece

    def _shorten(self, held: str) -> None:
        """Forget pending tokens that can't matter any more: bytes that made no character, tokens without a text."""
        recent = self._pending[-NUM_RECENT:]
        text = self._decode(self._context + recent)
        if text.endswith(held):
            self._pending = recent
            self._shown = text.removesuffix(held)


def _certain_part(text: str) -> str:
    num_replaced = len(text) - len(text.rstrip(REPLACEMENT))
    return text[: len(text) - min(num_replaced, MAX_UNFINISHED)]
