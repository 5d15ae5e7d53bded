"""The updates of one reply on their way from the engine to whoever writes it. Knows no HTTP."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self

from mtplx.engine.types import Update


class RequestStream:
    """The updates of one or several requests, in the order in which they come; the last of each has a completion.

    Leaving the context calls `abort` with the id of each request that has not ended. `give_up` is called, once, when
    more than `max_buffered` updates wait for a reader that is busy with an earlier one; later ones are dropped. A
    reader that waits for updates is never behind, however many come at once.
    """

    def __init__(
        self,
        request_ids: Iterable[str],
        abort: Callable[[str], None],
        give_up: Callable[[], None],
        max_buffered: int,
    ) -> None:
        self._open = dict.fromkeys(request_ids)  # in order, unlike a set
        self._abort = abort
        self._give_up = give_up
        self._max_buffered = max_buffered
        self._updates: deque[Update] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._reader_is_busy = False
        self._is_given_up = False

    def push(self, update: Update) -> None:
        if update.completion is not None:
            del self._open[update.request_id]
        if self._is_given_up:
            return
        if self._reader_is_busy and len(self._updates) >= self._max_buffered:
            self._is_given_up = True
            self._give_up()
            return
        self._updates.append(update)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def first(self) -> Update:
        """The next update, which stays the next. One at a time may wait for it."""
        if not self._updates:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._updates[0]

    async def __aiter__(self) -> AsyncIterator[Update]:
        while self._open or self._updates:
            self._reader_is_busy = False
            await self.first()
            self._reader_is_busy = True
            yield self._updates.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for request_id in self._open:
            self._abort(request_id)
