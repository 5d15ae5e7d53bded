"""Paths as routes have them, whatever slashes a client puts between its base URL and the rest.

Knows ASGI scopes; knows no route. It changes the path instead of redirecting to the right one, since clients leave out
the body when they follow a redirect.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

_SLASHES = re.compile("/+")


class TidyPaths:
    """Around an application, which sees tidy paths only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": tidy(scope["path"])}
        await self._app(scope, receive, send)


def tidy(path: str) -> str:
    """The path with one slash where there are several, and none at the end."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"
