"""What is too much: bodies over the limit, requests beyond the queue."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.server.conftest import Client, StartServer, error_of
from tests.server.engines import MODEL, letter_engine

JSON = {"content-type": "application/json"}


def chunks(num_bytes: int) -> Iterator[bytes]:
    for _ in range(0, num_bytes, 1000):
        yield b" " * 1000


def test_a_body_over_the_limit_is_refused_whole_or_in_chunks(start_server: StartServer) -> None:
    client = start_server(max_body_bytes=20_000)
    declared = client.post("/v1/completions", content=b" " * 20_001, headers=JSON)
    chunked = client.post("/v1/completions", content=chunks(21_000), headers=JSON)
    for response in (declared, chunked):
        assert error_of(response, 413)["code"] == "request_too_large"
    assert client.complete(prompt="a").status_code == 200


def test_a_body_at_the_limit_is_taken(start_server: StartServer) -> None:
    body = b'{"model": "%s", "prompt": "abc"}' % MODEL.encode()
    client = start_server(max_body_bytes=20_000)
    response = client.post("/v1/completions", content=body + b" " * (20_000 - len(body)), headers=JSON)
    assert response.status_code == 200


@pytest.fixture
def slow_client(start_server: StartServer) -> Client:
    """A server that decodes one request at a time, which takes it long, while one other may wait."""
    return start_server(letter_engine(pace_s=0.02), max_running=1, max_waiting=1, keep_alive_s=0.05)


def test_a_request_beyond_the_queue_is_told_to_come_back_later(slow_client: Client) -> None:
    body = {"model": MODEL, "prompt": "abc", "max_tokens": 4000, "stream": True}
    with ExitStack() as stack:
        streams = [stack.enter_context(slow_client.stream("POST", "/v1/completions", json=body)) for _ in range(2)]
        slow_client.wait_for(lambda client: client.metric("mtplx:num_requests_waiting") == 1)
        refused = slow_client.complete(prompt="a", stream=True)
        error = error_of(refused, 429)
        assert [stream.status_code for stream in streams] == [200, 200]
    assert error["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1
    slow_client.wait_for(lambda client: client.complete(prompt="a", max_tokens=1).status_code == 200)
