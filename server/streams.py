"""The updates of one request on their way from the engine to whoever writes the reply. Knows no HTTP."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from mtplx.engine.types import Update


class RequestStream:
    """The updates of one request, in order; the last has a completion. Leaving the context early calls `abort`.

    `give_up` is called, once, when more than `max_buffered` updates wait for a reader that is busy with an earlier
    one; later ones are dropped. A reader that waits for updates is never behind, however many come at once.
    """

    def __init__(self, abort: Callable[[], None], give_up: Callable[[], None], max_buffered: int) -> None:
        self._abort = abort
        self._give_up = give_up
        self._max_buffered = max_buffered
        self._updates: deque[Update] = deque()
        self._has_updates = asyncio.Event()
        self._reader_is_busy = False
        self._is_given_up = False
        self._ended = False

    def push(self, update: Update) -> None:
        self._ended = update.completion is not None
        if self._is_given_up:
            return
        if self._reader_is_busy and len(self._updates) >= self._max_buffered:
            self._is_given_up = True
            self._give_up()
            return
        self._updates.append(update)
        self._has_updates.set()

    async def first(self) -> Update:
        """The next update, which stays the next."""
        await self._has_updates.wait()
        return self._updates[0]

    async def __aiter__(self) -> AsyncIterator[Update]:
        completion = None
        while completion is None:
            self._reader_is_busy = False
            update = await self.first()
            self._reader_is_busy = True
            self._updates.popleft()
            if not self._updates:
                self._has_updates.clear()
            completion = update.completion
            yield update

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._ended:
            self._abort()
