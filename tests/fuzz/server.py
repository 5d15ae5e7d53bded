"""A server to be fuzzed: it is sent attempts, and its answers must be honest ones.

Knows HTTP, and the form of errors and events. Knows no field.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Self

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine, LoadEngine
from tests.fuzz.attempts import Attempt
from tests.server.conftest import Client, running_server

CONTEXT_LENGTH = 1024  # no text grows longer, so that no request takes long
DEADLINE_S = 20.0
# The letters' engine fails on purpose after some prompts; requests may ask for too little time, but the server never.
_HONEST = {"non_finite_logits", "timeout"}
_ERROR_FIELDS = ("message", "type", "param", "code")


@contextmanager
def fuzzed_server(load_engine: LoadEngine) -> Iterator[Client]:
    """A server with short texts, which must be well and idle in the end."""

    def load_briefly(settings: Settings) -> LoadedEngine:
        loaded = load_engine(settings)
        length = min(CONTEXT_LENGTH, loaded.limits.context_length)
        limits = replace(loaded.limits, context_length=length)
        return replace(loaded, limits=limits, model=replace(loaded.model, context_length=length))

    with running_server(load_briefly) as client:
        yield client
        client.wait_for(lambda client: not any(_open_requests(client).values()))
        assert client.get("/health").status_code == HTTPStatus.OK


def _open_requests(client: Client) -> dict[str, Any]:
    load = client.get("/health").json()["load"]
    return {name: load[name] for name in ("num_running", "num_waiting")}


class Sender:
    """Sends one attempt after the other, on one connection as long as it stays open."""

    def __init__(self, client: Client) -> None:
        self._address = (client.base_url.host, client.base_url.port)
        self._connection = http.client.HTTPConnection(*self._address, timeout=DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, attempt: Attempt) -> int | None:
        """The status of the answer, which is checked, or None if nobody stayed to read it."""
        if attempt.reads is not None:
            return self._leave_early(attempt)
        self._connection.putrequest(
            attempt.method, attempt.path, skip_host="Host" in attempt.headers, skip_accept_encoding=True
        )
        for name, value in {**attempt.headers, "Content-Length": str(len(attempt.body))}.items():
            self._connection.putheader(name, value.encode("latin-1"))
        try:
            self._connection.endheaders(attempt.body)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        check_answer(attempt.method, response.status, response.headers.get("content-type", ""), content)
        assert response.headers["X-Request-Id"]
        return response.status

    def _leave_early(self, attempt: Attempt) -> None:
        first = f"{attempt.method} {attempt.path} HTTP/1.1"
        lines = [first, "Host: here", "Connection: close", f"Content-Length: {len(attempt.body)}"]
        lines += [f"{name}: {value}" for name, value in attempt.headers.items()]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        with socket.create_connection(self._address, timeout=DEADLINE_S) as connection:
            connection.sendall(head + attempt.body[: len(attempt.body) - attempt.holds_back])
            missing = 0 if attempt.holds_back else attempt.reads or 0
            while missing > 0 and (data := connection.recv(missing)):
                missing -= len(data)


def check_answer(method: str, status: int, media_type: str, content: bytes) -> None:
    """The answer is a success in a form that it declares, or an error in OpenAI's, and none of the server's own."""
    text = content.decode()
    assert "Traceback" not in text
    kind = media_type.partition(";")[0]
    if method == "HEAD":
        assert not content
    elif status >= HTTPStatus.BAD_REQUEST:
        error = check_error(json.loads(content))
        assert status < HTTPStatus.INTERNAL_SERVER_ERROR or error["code"] in _HONEST, text
    elif kind == "text/event-stream":
        check_events(text)
    elif kind == "application/json":
        json.loads(content)


def check_error(body: Any) -> dict[str, Any]:
    """The error, if `body` has the form of OpenAI's."""
    assert list(body) == ["error"], body
    error: dict[str, Any] = body["error"]
    assert tuple(error) == _ERROR_FIELDS, body
    for name in ("message", "type"):
        assert isinstance(error[name], str), body
        assert error[name], body
    for name in ("param", "code"):
        assert isinstance(error[name], str | None), body
    return error


def check_events(text: str) -> None:
    """A stream of replies that ends with [DONE] or with an honest error."""
    events = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    if events[-1] == "[DONE]":
        events.pop()
    else:
        assert check_error(json.loads(events.pop()))["code"] in _HONEST, text
    assert all("choices" in json.loads(event) for event in events), text
