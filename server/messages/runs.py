"""Text between markers, without the blanks beside the markers: these belong to them."""


class Run:
    """Text of one kind that comes in pieces, with markers in between. Blanks at its end are held back until it is known
    whether a marker follows; of those around a marker, the ones before it part the texts, if there are any."""

    def __init__(self, *, follows_marker: bool) -> None:
        self._follows_marker = follows_marker
        self._has_text = False
        self._held = ""

    def push(self, text: str) -> str:
        if self._follows_marker:
            text = text.lstrip()
        if not text:
            return ""
        text = self._held + text
        shown = text.rstrip()
        self._held = text[len(shown) :]
        self._follows_marker = False
        self._has_text = self._has_text or bool(shown)
        return shown

    def pass_marker(self) -> None:
        self._follows_marker = True
        if not self._has_text:
            self._held = ""

    def release(self) -> str:
        """What was held back, where no marker can follow."""
        if self._follows_marker:
            return ""
        held, self._held = self._held, ""
        return held
