"""A connection to a client, which the application can cut off.

Knows uvicorn's HTTP over a transport. Knows no request.
"""

import asyncio
from collections.abc import Callable

import fastapi
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """Tells each of its requests how to cut it off; see `cut_off`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so has uvicorn's
        super().connection_made(transport)
        self.app_state = {**self.app_state, "cut_off": transport.abort}


def cut_off(request: fastapi.Request) -> Callable[[], None]:
    """What closes the request's connection at once. To close it properly would wait until the client has read all that
    was written, which may be never."""
    abort: Callable[[], None] = request.state.cut_off
    return abort
