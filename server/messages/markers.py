"""Markers in a text that comes in pieces: never half of one is taken for text."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """A text up to the first marker in it, that marker, and what comes after. Without a marker, `after` is the end of
    the text that may be the beginning of one."""

    before: str
    marker: str | None
    after: str


def cut_at_marker(text: str, markers: Iterable[str]) -> Cut:
    """`markers` holds no empty one. Of several that begin together, the longest counts."""
    found = [(index, -len(marker), marker) for marker in markers if (index := text.find(marker)) >= 0]
    if found:
        start, _, marker = min(found)
        return Cut(text[:start], marker, text[start + len(marker) :])
    end = len(text) - max((_beginning(text, marker) for marker in markers), default=0)
    return Cut(text[:end], None, text[end:])


class UpTo:
    """Collects a text up to a marker, or all of it if the marker is empty; each piece is looked at once."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._pieces: list[str] = []
        self._held = ""

    def push(self, text: str) -> str | None:
        """What comes after the marker, None if that hasn't come yet."""
        cut = cut_at_marker(self._held + text, [self._marker] if self._marker else [])
        self._pieces.append(cut.before)
        self._held = "" if cut.marker else cut.after
        return cut.after if cut.marker else None

    def collected(self) -> str:
        """The text before the marker, or all there is."""
        return "".join(self._pieces) + self._held


def _beginning(text: str, marker: str) -> int:
    """Length of the longest end of `text` that is a beginning of `marker`, but not all of it."""
    longest = min(len(text), len(marker) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(marker[:length])), 0)
