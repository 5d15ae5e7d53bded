"""Real servers on free ports. In-process transports buffer bodies and never disconnect: useless here."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import httpx
import pytest

from mtplx.configs.settings import Settings
from mtplx.server.app import create_app
from mtplx.server.bridge import LoadEngine
from mtplx.server.running import Server, listen
from tests.server.engines import MODEL, letter_engine

DEADLINE_S = 20.0  # for what should take milliseconds, on a machine that may be busy


class Client(httpx.Client):
    """A client of one server, which knows the two endpoints."""

    def complete(self, **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", json={"model": MODEL, **fields})

    def chat(self, *messages: str, **fields: Any) -> httpx.Response:
        turns = [{"role": "user", "content": message} for message in messages]
        return self.post("/v1/chat/completions", json={"model": MODEL, "messages": turns, **fields})

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        total = 0.0
        for line in self.get("/metrics").text.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample.partition("{")[0] == name and all(f'{key}="{labels[key]}"' in sample for key in labels):
                total += float(value)
        return total

    def wait_for(self, condition: Callable[["Client"], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self):
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)


class StartServer(Protocol):
    def __call__(self, load_engine: LoadEngine = ..., **options: Any) -> Client: ...


@contextmanager
def running_server(
    load_engine: LoadEngine, *, while_loading: Callable[[Client], None] = lambda client: None, **settings: Any
) -> Iterator[Client]:
    """A server in a thread, past loading."""
    chosen = Settings(shutdown_grace_s=0, **settings)
    server = Server(create_app(chosen, load_engine), chosen)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(base_url=url, timeout=DEADLINE_S) as client:
            try:
                while_loading(client)
                client.wait_for(lambda client: client.get("/health").json()["status"] != "loading")
                yield client
            finally:
                server.should_exit = True
                thread.join(DEADLINE_S)
                assert not thread.is_alive()


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """A server with the letters' engine, for tests that leave no trace in it."""
    with running_server(letter_engine()) as client:
        yield client


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts a server of the test's own."""
    running = []

    def start(load_engine: LoadEngine | None = None, **options: Any) -> Client:
        server = running_server(load_engine or letter_engine(), **options)
        running.append(server)
        return server.__enter__()

    yield start
    for server in running:
        server.__exit__(None, None, None)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The chunks of a finished stream, which must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error in a response, which must have that status and the form of OpenAI's."""
    assert response.status_code == status, response.text
    body = response.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert "Traceback" not in response.text
    error: dict[str, Any] = body["error"]
    return error
