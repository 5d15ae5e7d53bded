"""Stop strings in a text that comes in pieces. Knows strings only: no tokens, no requests."""

from collections.abc import Sequence


class StopMatcher:
    """Lets text through up to the first stop string.

    The first is the one whose end comes first, of several that end together the longest; so the outcome doesn't
    depend on how the text was cut into pieces. `stops` holds no empty string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""  # text that may be the beginning of a stop string

    def push(self, text: str, *, may_stop: bool = True) -> tuple[str, str | None]:
        """The text that is safe to show, and the stop string that was reached, if one was.

        Neither the stop string nor anything after it is ever returned. Push nothing after a stop. One whose end is in a
        text that may not stop is text like any other.
        """
        start, text = len(self._held), self._held + text
        found = [(index + len(stop), index) for stop in self._stops if (index := _find(stop, text, start)) >= 0]
        if found and may_stop:
            self._held = ""
            end, index = min(found)
            return text[:index], text[index:end]
        num_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        cut = len(text) - num_held
        self._held = text[cut:]
        return text[:cut], None

    def flush(self) -> str:
        """The text held back, which turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


def _find(stop: str, text: str, start: int) -> int:
    """Where the first `stop` begins that ends after `start`; -1 if there is none."""
    return text.find(stop, max(0, start - len(stop) + 1))


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
