"""What every request meets first: an id, a line in the log, one more if it fails, and HEAD answered without a body.

Knows ASGI messages; knows no route. It stands outside the application, so that no answer escapes it.
"""

import logging
import re
import secrets
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"

logger = logging.getLogger(__name__)

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class Access:
    """Around an application. The id of a request is the client's own if it gave a sane one; see `request_id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        name = given if _SANE_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
                _log(scope, message["status"], name)
            await send(message)

        # uvicorn leaves the body out where the method it read is HEAD.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        try:
            await self._app({**scope, "method": method, "request_id": name}, receive, send_with_id)
        except Exception:
            # The client has been told as far as it could be, under the same id.
            logger.exception("request %s failed", name)


def request_id(scope: Scope) -> str:
    """The id of the request, as its response and the log have it."""
    name: str = scope["request_id"]
    return name


def _log(scope: Scope, status: int, name: str) -> None:
    host, port = scope["client"] or ("", 0)
    path = quote(scope["path"])
    logger.info('%s:%d - "%s %s HTTP/%s" %d %s', host, port, scope["method"], path, scope["http_version"], status, name)
