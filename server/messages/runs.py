"""A run of text between markers, without the blanks beside the markers: these belong to them."""


class Run:
    """Text that comes in pieces. Blanks at its end are held back until it is known whether a marker follows."""

    def __init__(self, *, follows_marker: bool) -> None:
        self._is_at_start = follows_marker
        self._held = ""

    def push(self, text: str) -> str:
        text = self._held + text
        if self._is_at_start:
            text = text.lstrip()
        shown = text.rstrip()
        self._held = text[len(shown) :]
        self._is_at_start = self._is_at_start and not shown
        return shown

    def release(self) -> str:
        """What was held back, where no marker can follow."""
        held, self._held = self._held, ""
        return held
