"""Memory for the rows of running sequences: what a request may grow to is set aside before it runs.

Knows sizes; knows no cache.
"""

from dataclasses import dataclass

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.types import Request

_SPARE = 1.5  # buffers grow by half


@dataclass(frozen=True)
class CacheMemory:
    """At most `max_bytes` in all, at `row_bytes` a row."""

    max_bytes: int
    row_bytes: int

    def needed_by(self, request: Request) -> int:
        """The most bytes that the rows of `request` may come to take."""
        num_rows = len(request.prompt) + request.max_tokens + request.draft_depth
        return int(_SPARE * num_rows * self.row_bytes)

    def check(self, request: Request) -> None:
        """Raises InvalidRequestError for a request that would not fit alone."""
        needed = self.needed_by(request)
        if needed > self.max_bytes:
            most = int(self.max_bytes / self.row_bytes / _SPARE) - request.draft_depth
            raise InvalidRequestError(
                f"prompt and output may come to {len(request.prompt) + request.max_tokens} tokens, for which this "
                f"server's cache_memory_mb has no room: it holds {most}; ask for fewer",
                field="max_tokens",
            )
