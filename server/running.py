"""The server as a process: its socket, its log, and how it ends at a signal.

Knows uvicorn. Knows no route.
"""

import logging
import math
import os
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from mtplx.configs.settings import Settings
from mtplx.engine.errors import EngineUnavailableError
from mtplx.server.app import create_app
from mtplx.server.bridge import AsyncEngine, LoadEngine
from mtplx.server.connection import Connection
from mtplx.server.entrance import entrance
from mtplx.server.keys import require_protection

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_INTERRUPTED = 130
_KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that none is closed under a new request
_PATIENCE_S = 2  # for a step of the engine that takes longer than the grace period
_SEND_BUFFER_BYTES = 64 * 1024


class ListenError(OSError):
    """The address to listen on cannot be had."""


class Server(uvicorn.Server):
    """Stops the engine as soon as it is told to exit: open streams would keep it waiting otherwise.

    They have `shutdown_grace_s` seconds to finish; then each gets an error as its last event. With `exit_on_failure`
    it exits by itself once the engine has failed.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        grace_s = settings.shutdown_grace_s
        super().__init__(
            uvicorn.Config(
                entrance(app, settings),
                http=Connection,
                access_log=False,  # the entrance keeps one
                lifespan="on",
                ws="none",
                log_config=None,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(grace_s) + _PATIENCE_S,
            )
        )
        self._engine: AsyncEngine = app.state.engine
        self._grace_s = grace_s
        self._exit_on_failure = settings.exit_on_failure

    @property
    def gives_up(self) -> bool:
        """Whether it exits because the engine has failed."""
        return self._exit_on_failure and self._engine.status.state == "failed"

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; whether to exit."""
        return await super().on_tick(counter) or self.gives_up

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit; at a second signal, leave everything as it is. A signal is not raised again in the end, as uvicorn
        would do, for to have exited on it is no failure."""
        if self.should_exit:
            os._exit(_INTERRUPTED)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("shutting down; open requests have %g s to finish", self._grace_s)
        self._engine.stop(self._grace_s)
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; on all addresses of IPv6 it takes IPv4 too. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    takes_both = host == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=takes_both)
    except OSError as error:
        # Errors of name resolution have numbers of their own; of the others Python's words repeat the address.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ListenError(f"cannot listen on {host}, port {port}: {reason}") from None
    # Inherited by every connection. Without it, the second write of a reply waits for the first to be acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Inherited too. By itself it grows to megabytes, behind which a client that reads nothing would go unnoticed.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return listener


def run_server(settings: Settings, load_engine: LoadEngine) -> None:
    """Serve until SIGINT or SIGTERM comes.

    Raises SettingsError if other machines could use the server without a key and the settings don't say they may,
    ListenError, and EngineUnavailableError if the engine has failed and the settings say to exit then.
    """
    _set_up_log(settings)
    app = create_app(settings, load_engine)
    server = Server(app, settings)
    with listen(settings.host, settings.port) as listener:
        require_protection(listener.getsockname()[0], settings)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        logger.info("listening on http://%s:%d", host, listener.getsockname()[1])
        server.run([listener])
    if server.gives_up:
        raise EngineUnavailableError(f"the engine has failed: {app.state.engine.status.reason}")
    if app.state.engine.is_alive:
        # Still loading, or deep in a step: the interpreter cannot end a thread that is inside native code.
        logging.shutdown()
        os._exit(0)


def _set_up_log(settings: Settings) -> None:
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    if settings.log_level == "info":
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its start and end are told here
