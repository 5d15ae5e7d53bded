"""The text of one choice as it grows: tokens in, certain text out, until a stop string ends it."""

from collections.abc import Callable, Sequence

from mtplx.engine.text.detokenizer import PROMPT_TAIL, Detokenizer
from mtplx.engine.text.stops import StopMatcher


class TextStream:
    """Detokenizes after `prompt` and looks for stop strings across the borders of tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(decode, prompt[-PROMPT_TAIL:])
        self._matcher = StopMatcher(stops)

    def push(self, token: int, *, may_stop: bool = True) -> tuple[str, str | None]:
        """The text that `token` made certain, and the stop string that was reached, which ends the text, if one was.

        A stop string that would be reached where the text may not stop is text like any other.
        """
        return self._matcher.push(self._detokenizer.push(token), may_stop=may_stop)

    def finish(self) -> str:
        """What was held back, now that nothing follows. Only for text that no stop string ended."""
        text, stop = self._matcher.push(self._detokenizer.flush())
        return text + self._matcher.flush() if stop is None else text
