"""What every request passes on its way to the application, from outside in: its id and the log, its path's slashes,
what a browser asks of other origins, and its key.

It stands outside, so that no answer escapes it: a page may read of an error too.
"""

from starlette.types import ASGIApp

from mtplx.configs.settings import Settings
from mtplx.server.access import Access
from mtplx.server.cors import allow_origins
from mtplx.server.keys import KeyCheck, KeyRing, read_keys
from mtplx.server.paths import TidyPaths


def entrance(app: ASGIApp, settings: Settings) -> ASGIApp:
    """`app` behind its entrance. Raises SettingsError if keys cannot be read."""
    keys = read_keys(settings)
    if keys:
        app = KeyCheck(app, KeyRing(keys), public_metrics=settings.public_metrics)
    return Access(TidyPaths(allow_origins(app, settings.cors_origin)))
