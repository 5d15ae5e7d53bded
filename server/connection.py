"""A connection to a client, which the application can cut off, and what is answered to what is no request.

Knows uvicorn's HTTP over a transport. Knows no request.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import fastapi
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mtplx.server.errors import ApiError

MAX_HEAD_BYTES = 64 * 1024


class Connection(HttpToolsProtocol):
    """Tells each of its requests how to cut it off; see `cut_off`. Refuses headers without end.

    The parser gathers a header bit by bit, which takes time that grows with the square of its length, and memory.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so has uvicorn's
        super().connection_made(transport)
        self.app_state = {**self.app_state, "cut_off": transport.abort}
        self._num_gathered = 0

    def data_received(self, data: bytes) -> None:
        self._num_gathered += len(data)
        super().data_received(data)
        if self._num_gathered > MAX_HEAD_BYTES:
            message = f"the headers are larger than {MAX_HEAD_BYTES} bytes, the most this server takes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "headers_too_large")

    def on_headers_complete(self) -> None:
        self._num_gathered = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_gathered = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_gathered = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn answers to what it cannot read, in the form of all other errors."""
        self._num_gathered = 0
        self._refuse(HTTPStatus.BAD_REQUEST, "what was sent is not an HTTP request", "invalid_http")

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        response = ApiError(status, message, code=code).response()
        headers = [*response.raw_headers, (b"connection", b"close")]
        lines = [f"HTTP/1.1 {status} {status.phrase}".encode(), *(b": ".join(header) for header in headers)]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()


def cut_off(request: fastapi.Request) -> Callable[[], None]:
    """What closes the request's connection at once. To close it properly would wait until the client has read all that
    was written, which may be never."""
    abort: Callable[[], None] = request.state.cut_off
    return abort
