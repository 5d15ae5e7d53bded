"""What is no HTTP request, or never becomes one, is answered as any error is, and keeps nobody waiting."""

import json
import socket
from contextlib import suppress

import pytest

from mtplx.server.connection import MAX_HEAD_BYTES
from tests.server.conftest import DEADLINE_S, Client
from tests.server.sockets import read_all

START = b"POST /v1/completions HTTP/1.1\r\nHost: here\r\n"
CHUNKED = START + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(client: Client, data: bytes) -> tuple[int, dict[str, str | None]]:
    """Status and error of what the server answers before it closes the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=DEADLINE_S) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):  # when it refuses before it has all
            connection.sendall(data)
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert b"connection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a client that speaks TLS\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        START + b"Content-Length: -5\r\n\r\n",
        START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"no number\r\n",
    ],
)
def test_what_is_no_request_gets_an_error_like_any_other(client: Client, data: bytes) -> None:
    status, error = answer(client, data)
    assert (status, error["type"], error["code"]) == (400, "invalid_request_error", "invalid_http")


@pytest.mark.parametrize("start", [START + b"A: ", CHUNKED + b"0\r\nA: "], ids=["header", "trailer"])
def test_a_header_without_end_is_refused(client: Client, start: bytes) -> None:
    status, error = answer(client, start + b"a" * (16 * MAX_HEAD_BYTES))
    assert (status, error["type"], error["code"]) == (431, "invalid_request_error", "headers_too_large")


def test_headers_as_long_as_may_be_are_read(client: Client) -> None:
    assert client.get("/health", headers={"A": "a" * (MAX_HEAD_BYTES // 2)}).status_code == 200
    assert client.complete(prompt="a" * (2 * MAX_HEAD_BYTES)).status_code == 400  # by its length in tokens
