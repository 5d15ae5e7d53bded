"""A client that goes frees its place at once, and what was decoded for it still counts."""

import logging
import socket
import threading

import httpx
import pytest

from tests.server.conftest import Client, StartServer
from tests.server.engines import MODEL, letter_engine

LONG = {"model": MODEL, "prompt": "abc", "max_tokens": 4000}  # more than a test could wait for


@pytest.fixture
def slow_client(start_server: StartServer) -> Client:
    return start_server(letter_engine(pace_s=0.02), max_running=1)


def is_running(client: Client) -> bool:
    return client.metric("mtplx:num_requests_running") == 1


def is_aborted(client: Client) -> bool:
    return client.metric("mtplx:request_success_total", finished_reason="abort") == 1


def assert_freed(client: Client) -> None:
    client.wait_for(is_aborted)
    assert client.get("/health").json()["load"]["num_running"] == 0
    assert client.complete(prompt="abc", max_tokens=2).status_code == 200
    assert client.metric("mtplx:generation_tokens_total") == client.metric("mtplx:request_generation_tokens_sum")


def test_leaving_a_stream_aborts_its_request(slow_client: Client) -> None:
    with slow_client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
        assert next(response.iter_lines()).startswith("data: ")
    assert_freed(slow_client)


def test_leaving_a_stream_before_its_first_event_aborts_its_request(slow_client: Client) -> None:
    body = {**LONG, "prompt": "a" * 3000, "max_tokens": 1000, "stream": True}
    with slow_client.stream("POST", "/v1/completions", json=body):
        slow_client.wait_for(is_running)
    assert_freed(slow_client)


def test_leaving_before_a_whole_reply_aborts_its_request(slow_client: Client) -> None:
    leaving = Client(base_url=slow_client.base_url)

    def ask() -> None:
        with pytest.raises(httpx.TransportError):
            leaving.post("/v1/completions", json=LONG, timeout=httpx.Timeout(20, read=0.5))

    thread = threading.Thread(target=ask)
    thread.start()
    slow_client.wait_for(is_running)
    thread.join()
    leaving.close()
    assert_freed(slow_client)


def test_leaving_while_the_body_is_sent_is_told_quietly(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nX-Request-Id: leaver\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
        client.wait_for(lambda _: any("leaver" in message for message in caplog.messages))
    [line] = [message for message in caplog.messages if "leaver" in message]
    assert line.endswith(" 499 leaver")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_leaving_the_queue_aborts_the_request(slow_client: Client) -> None:
    with slow_client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as first:
        lines = first.iter_lines()  # closes the stream when it is dropped
        next(lines)
        with slow_client.stream("POST", "/v1/completions", json={**LONG, "stream": True}):
            slow_client.wait_for(lambda client: client.metric("mtplx:num_requests_waiting") == 1)
        slow_client.wait_for(is_aborted)
        assert slow_client.metric("mtplx:num_requests_running") == 1
