"""Which pages in browsers may use the server, by the protocol that browsers have for it (CORS).

Knows headers, and that no cookie counts here: whoever may use the server shows a key.
"""

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_READABLE_HEADERS = ("X-Request-Id", "Retry-After", "X-Should-Retry")


def allow_origins(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """`app` for pages of these origins too. Their clients send headers of their own, all of which are let through."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=_READABLE_HEADERS,
    )
