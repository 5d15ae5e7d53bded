"""A server as a process of its own, for as long as it is measured. Knows processes and when a server answers."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import httpx

from mtplx.configs.settings import environment_without_keys
from mtplx.engine.errors import EngineError

HOST = "127.0.0.1"
_POLL_S = 0.1
_TIMEOUT_S = 600.0  # a large model takes its time
_END_S = 20.0


class ServerError(EngineError):
    """A server cannot be measured: it did not start, or it does not answer."""


@dataclass(frozen=True)
class ServerProcess:
    """A server that is ready at `url`."""

    url: str
    pid: int


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def own_server(settings: Mapping[str, object]) -> Iterator[ServerProcess]:
    """This server with these settings, whose names are those of `Settings`, on a free port; it ends with the context.

    Raises ServerError if it does not get ready.
    """
    port = free_port()
    chosen = {"log_level": "warning", **settings, "host": HOST, "port": port}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
    with server_process([sys.executable, "-m", "mtplx", "serve", *flags], port) as process:
        yield process


@contextmanager
def server_process(command: Sequence[str], port: int, *, quiet: bool = False) -> Iterator[ServerProcess]:
    """Whatever `command` starts, once GET /health has status 200 on `port`; its own output is dropped if `quiet`.

    Raises ServerError if it does not get ready.
    """
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment_without_keys()
    )
    try:
        url = f"http://{HOST}:{port}"
        _wait_until_ready(process, url)
        yield ServerProcess(url, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def model_name(url: str) -> str:
    """What the server at `url` calls its first model. Raises ServerError if it does not say."""
    try:
        response = httpx.get(f"{url}/v1/models", timeout=_END_S)
        response.raise_for_status()
        return str(response.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise ServerError(f"{url} does not answer GET /v1/models as an OpenAI server does: {error}") from None


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not _is_ready(url):
        if process.poll() is not None:
            raise ServerError(f"the server ended with status {process.returncode} before it was ready")
        if time.monotonic() > deadline_s:
            raise ServerError(f"the server was not ready within {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _is_ready(url: str) -> bool:
    """Raises ServerError if the server says that it never will be."""
    try:
        response = httpx.get(f"{url}/health", timeout=_END_S)
    except httpx.TransportError:
        return False
    if '"status":"failed"' in response.text:
        raise ServerError(f"the server failed: {response.json()['reason']}")
    return response.status_code == HTTPStatus.OK
