"""Where a JSON value ends in a text that comes in pieces. Knows brackets and strings, and validates nothing else."""

import re

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]<]')


class JsonScan:
    """Follows the brackets of JSON; `depth` are open."""

    def __init__(self, *, depth: int = 0) -> None:
        self._depth = depth
        self._is_in_string = False
        self._is_escaped = False

    def advance(self, text: str, *, to_depth: int) -> int | None:
        """The index just after the bracket that closes down to that depth, or that of a "<" outside of strings, which
        is no JSON; None if the text ends before either. Goes on with the next text, which begins there."""
        position = 0
        if self._is_escaped and text:
            self._is_escaped, position = False, 1
        while found := (_IN_STRING if self._is_in_string else _OUTSIDE).search(text, position):
            position = found.end()
            match found.group():
                case "\\":
                    self._is_escaped = position == len(text)
                    position += 1
                case '"':
                    self._is_in_string = not self._is_in_string
                case "{" | "[":
                    self._depth += 1
                case "}" | "]":
                    self._depth -= 1
                    if self._depth == to_depth:
                        return position
                case _:
                    return position - 1
        return None
