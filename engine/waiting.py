"""Requests that wait for their turn: the most urgent first, and of these whoever came first. Knows no sequence."""

import time
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from mtplx.engine.types import Completion, FinishReason, Request, SpeculationStats


@dataclass(frozen=True)
class Waiting:
    """A request that waits since `since_s`, in monotonic seconds."""

    request: Request
    since_s: float

    def completion(self, reason: FinishReason) -> Completion:
        """The end of a request that never ran."""
        return Completion(
            reason=reason,
            num_prompt_tokens=len(self.request.prompt),
            num_output_tokens=0,
            queue_time_s=time.monotonic() - self.since_s,
            speculation=SpeculationStats.none(self.request.draft_depth),
        )


class WaitingLine:
    """In the order in which they will run."""

    def __init__(self) -> None:
        self._entries: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    def add(self, request: Request) -> None:
        entry = Waiting(request, time.monotonic())
        insort(self._entries, entry, key=lambda each: (each.request.priority, each.since_s))

    def remove(self, entry: Waiting) -> None:
        self._entries.remove(entry)
