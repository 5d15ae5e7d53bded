"""Calls spelled as JSON, {"name": …, "arguments": {…}}, whose arguments are passed on as they come.

A block holds one call, or several, one after another or in a list. Where the name doesn't come first, or the arguments
aren't plainly an object, a call is read once it is whole.
"""

import json
import re
from collections.abc import Sequence

from mtplx.engine.text.abilities import Tool, ToolStyle
from mtplx.server.messages.blocks import ArgumentsText, CallName, NoCall, Piece, call_pieces, names_of
from mtplx.server.messages.json_scan import JsonScan
from mtplx.server.messages.markers import UpTo

_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')
_MOST_HEAD_CHARS = 512  # a head that is longer is none
_BETWEEN_CALLS = " \t\r\n,[]"
_LEFT_OVER = _BETWEEN_CALLS + "}"  # brackets too many after a call mean nothing


class JsonBlock:
    """A Block. Its states read what they can and say whether the next one, in `_read`, may have something to read."""

    def __init__(self, style: ToolStyle, tools: Sequence[Tool]) -> None:
        self.rest: str | None = None
        self._names = names_of(tools)
        self._end = style.end
        self._before_calls = style.start  # what was read, as long as there is no call
        self._unread = ""
        self._has_calls = False
        self._scan, self._num_scanned = JsonScan(), 0
        self._no_call = UpTo(self._end)
        self._read = self._read_between

    def push(self, text: str) -> list[Piece]:
        self._unread += text
        pieces: list[Piece] = []
        while self.rest is None and self._read(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        return self._give_back(end="")

    def _read_between(self, pieces: list[Piece]) -> bool:
        text = self._unread.lstrip(_LEFT_OVER if self._has_calls else _BETWEEN_CALLS)
        if not self._has_calls:
            self._before_calls += self._unread.removesuffix(text)
        self._unread = text
        if len(text) < len(self._end) and self._end.startswith(text):
            return False
        self._scan, self._num_scanned = JsonScan(), 0
        self._read = self._read_head if text.startswith("{") else self._read_no_call
        return True

    def _read_head(self, pieces: list[Piece]) -> bool:
        try:
            head = _HEAD.match(self._unread[:_MOST_HEAD_CHARS])
            return self._open_call(head, pieces) if head else self._read_whole_call(pieces)
        except Exception:  # whatever a model made up instead of a call
            self._read = self._read_no_call
            return True

    def _open_call(self, head: re.Match[str], pieces: list[Piece]) -> bool:
        name = json.loads(head[1])
        if name not in self._names:
            raise ValueError
        pieces.append(CallName(name))
        self._leave_behind(head.end())
        self._scan = JsonScan(depth=1)
        self._read = self._read_arguments
        return True

    def _read_whole_call(self, pieces: list[Piece]) -> bool:
        end = self._scan.advance(self._unread[self._num_scanned :], to_depth=0)
        if end is None:
            self._num_scanned = len(self._unread)
            return False
        end += self._num_scanned
        pieces += list(call_pieces(json.loads(self._unread[:end]), self._names))
        self._leave_behind(end)
        self._read = self._read_between
        return True

    def _leave_behind(self, end: int) -> None:
        self._has_calls, self._before_calls, self._unread = True, "", self._unread[end:]

    def _read_arguments(self, pieces: list[Piece]) -> bool:
        text, is_at_end = self._scanned(to_depth=1)
        pieces += [ArgumentsText(text)] * bool(text)
        if is_at_end:
            self._read = self._read_tail
        return is_at_end

    def _read_tail(self, pieces: list[Piece]) -> bool:
        _, is_at_end = self._scanned(to_depth=0)
        if is_at_end:
            self._read = self._read_between
        return is_at_end

    def _scanned(self, *, to_depth: int) -> tuple[str, bool]:
        """The text up to where that depth is reached, or JSON ends, and whether it goes so far."""
        end = self._scan.advance(self._unread, to_depth=to_depth)
        text, self._unread = self._unread[:end], "" if end is None else self._unread[end:]
        return text, end is not None

    def _read_no_call(self, pieces: list[Piece]) -> bool:
        text, self._unread = self._unread, ""
        self.rest = self._no_call.push(text)
        if self.rest is not None:
            pieces += self._give_back(end=self._end)
        return False

    def _give_back(self, *, end: str) -> list[Piece]:
        text = self._before_calls + self._no_call.collected() + self._unread
        if self._has_calls:  # what is left may be half of the end marker
            return [] if self._end.startswith(text) else [NoCall(text)]
        return [NoCall(text + end)]
