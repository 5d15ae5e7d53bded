"""API keys: who may use the server.

Knows the settings that name keys, and ASGI scopes. Of a key only its hash is kept, and no message holds one.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mtplx.configs.settings import KEY_RULE, Settings, SettingsError, is_key
from mtplx.server.errors import ApiError

# How the server is, for whoever keeps it running; and what any installation of it says of itself.
_OPEN_PATHS = frozenset({"/health", "/docs", "/openapi.json"})


class KeyRing:
    """Keys that open the server."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def holds(self, key: str) -> bool:
        """Whether it is one of them, in a time that depends neither on the key nor on which one it is."""
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, own) for own in self._digests]
        return any(matches)


class KeyCheck:
    """Around an application: answers requests without a key of the ring with 401, but for what is open to all."""

    def __init__(self, app: ASGIApp, ring: KeyRing, *, public_metrics: bool) -> None:
        self._app = app
        self._ring = ring
        self._open_paths = _OPEN_PATHS | ({"/metrics"} if public_metrics else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope).get("authorization", ""))
        except ApiError as error:
            response = error.response()
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, authorization: str) -> None:
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _unauthorized("this server needs an API key; send it in a header, as Authorization: Bearer KEY")
        if not self._ring.holds(key.strip()):
            raise _unauthorized("the API key is not one that this server knows")


def read_keys(settings: Settings) -> list[str]:
    """The keys that the settings give or name a file of. Raises SettingsError, which quotes none of them."""
    keys = [key.get_secret_value() for key in settings.api_key]
    path = settings.api_key_file
    if path is None:
        return keys
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise SettingsError(f"api_key_file: {path}: {error.strerror}") from None
    except UnicodeError:
        raise SettingsError(f"api_key_file: {path} is not a text file") from None
    in_file = {number: line for number, line in enumerate(lines, start=1) if line and not line.startswith("#")}
    bad = [number for number, line in in_file.items() if not is_key(line)]
    if bad:
        raise SettingsError(f"api_key_file: {path}, line {bad[0]}: {KEY_RULE}")
    if not in_file:
        raise SettingsError(f"api_key_file: {path} holds no key")
    return keys + list(in_file.values())


def require_protection(address: str, settings: Settings) -> None:
    """Raises SettingsError if machines other than this one reach a server at `address` and need no key."""
    has_keys = bool(settings.api_key) or settings.api_key_file is not None
    if not (has_keys or settings.allow_anonymous or ipaddress.ip_address(address).is_loopback):
        raise SettingsError(
            f"host: other machines reach {settings.host}, and there is no API key; give one (--api-key, "
            "--api-key-file, MTPLX_API_KEY) or say that anybody may use the server (--allow-anonymous, "
            "MTPLX_ALLOW_ANONYMOUS=true)"
        )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _unauthorized(message: str) -> ApiError:
    return ApiError(HTTPStatus.UNAUTHORIZED, message, code="invalid_api_key")
