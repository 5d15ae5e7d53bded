"""What a client sent, given back to it in messages, at a length that a person reads. Knows no request."""

from collections.abc import Sequence

_MAX_CHARS = 80
_MAX_NAMES = 10


def excerpt(text: str) -> str:
    """The text, or the beginning of a long one."""
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def listing(names: Sequence[str]) -> str:
    """The names, or the first few of many."""
    told = ", ".join(excerpt(name) for name in names[:_MAX_NAMES])
    return told if len(names) <= _MAX_NAMES else f"{told} and {len(names) - _MAX_NAMES} more"
