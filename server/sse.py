"""Server-sent events: a stream of replies that ends the request with itself.

Knows HTTP streaming; knows nothing of what the events say.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import AppStatus, EventSourceResponse
from starlette.types import Message, Receive, Scope, Send

# At shutdown the engine ends what is open, in order; the library would cut streams off at once.
AppStatus.enable_automatic_graceful_drain = False


class EventStream(EventSourceResponse):
    """Sends `events`, each the data of one event, and a comment every `keep_alive_s` seconds unless that is 0.

    Comments tell proxies and clients that somebody is still there; whoever reads events skips them. Leaves `source`
    when done, or when the client has gone.
    """

    def __init__(
        self, events: AsyncIterator[bytes], source: AbstractContextManager[object], *, keep_alive_s: float
    ) -> None:
        super().__init__(events, sep="\n", ping=keep_alive_s, ping_message_factory=_keep_alive)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._source:
            await super().__call__(scope, receive, send)

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        # There is no time limit, and to enter a scope without one takes longer than to send.
        await send(message)


def event(data: bytes) -> bytes:
    """The wire form of an event; `data` has no line break."""
    return b"data: " + data + b"\n\n"


def _keep_alive() -> ServerSentEvent:
    return ServerSentEvent(comment="keep-alive", sep="\n")
