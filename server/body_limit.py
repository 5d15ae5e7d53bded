"""A limit on the size of request bodies. Knows ASGI messages and nothing of what a body means."""

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mtplx.server.errors import ApiError


class BodyLimit:
    """Middleware under which reading a body of more than `max_bytes` raises ApiError with status 413.

    A declared length is refused before a byte of it is read; a body sent in chunks, as soon as it is too long.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        num_declared = int(declared) if declared.isdecimal() else 0
        num_received = 0

        async def receive_within_limit() -> Message:
            nonlocal num_received
            self._check(num_declared)
            message = await receive()
            num_received += len(message.get("body", b""))
            self._check(num_received)
            return message

        await self._app(scope, receive_within_limit, send)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the request body is larger than {self._max_bytes} bytes, the most this server takes",
                code="request_too_large",
            )
