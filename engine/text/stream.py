"""The text of one choice as it grows: tokens in, certain text out, until a stop string ends it."""

from collections.abc import Callable, Sequence

from mtplx.engine.text.detokenizer import Detokenizer
from mtplx.engine.text.stops import StopMatcher

_NUM_CONTEXT_TOKENS = 8  # of the prompt: enough for a character or a word that goes on in the output


class TextStream:
    """Detokenizes after `prompt` and looks for stop strings across the borders of tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(decode, prompt[-_NUM_CONTEXT_TOKENS:])
        self._matcher = StopMatcher(stops)

    def push(self, token: int) -> tuple[str, bool]:
        """The text that `token` made certain, and whether a stop string was reached, which ends the text."""
        return self._matcher.push(self._detokenizer.push(token))

    def finish(self) -> str:
        """What was held back, now that nothing follows. Only for text that no stop string ended."""
        text, stopped = self._matcher.push(self._detokenizer.flush())
        return text if stopped else text + self._matcher.flush()
