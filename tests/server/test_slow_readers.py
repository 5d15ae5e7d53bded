"""A client that does not read its stream is cut off, and nobody else notices."""

import logging

import pytest

from tests.server.conftest import Client, StartServer, events
from tests.server.engines import MODEL, letter_engine
from tests.server.sockets import asked, read_all

LONG = {"model": MODEL, "prompt": "abc", "max_tokens": 4000, "stream": True, "speculative_depth": 0}


def is_cut_off(client: Client) -> bool:
    return client.metric("mtplx:slow_readers_total") == 1


def test_it_is_cut_off_and_its_request_aborted(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    client = start_server(max_stream_buffer=16)
    with asked(client, LONG, receive_buffer_bytes=4096) as silent:
        client.wait_for(is_cut_off)
        client.wait_for(lambda client: client.metric("mtplx:request_success_total", finished_reason="abort") == 1)
        received = read_all(silent)  # which it was not waited for
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"[DONE]" not in received
    assert client.get("/health").json()["load"]["num_running"] == 0
    assert client.metric("mtplx:generation_tokens_total") == client.metric("mtplx:request_generation_tokens_sum") < 4000
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "reads too slowly" in warning.getMessage()


def test_one_that_reads_beside_it_gets_all(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.0005), max_stream_buffer=16)
    with asked(client, LONG, receive_buffer_bytes=4096):
        reply = client.complete(prompt="ab", max_tokens=300, stream=True, seed=1)
        assert "".join(chunk["choices"][0]["text"] for chunk in events(reply)) == text_of(client)
        client.wait_for(is_cut_off)


def text_of(client: Client) -> str:
    text: str = client.complete(prompt="ab", max_tokens=300, seed=1).json()["choices"][0]["text"]
    return text


def test_one_that_only_pauses_is_not_cut_off(start_server: StartServer) -> None:
    client = start_server(max_stream_buffer=100_000)
    with asked(client, LONG, receive_buffer_bytes=4096) as slow:
        client.wait_for(lambda client: client.metric("mtplx:request_success_total", finished_reason="length") == 1)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += slow.recv(1 << 16)
    assert received.count(b"data: {") == 4001
    assert client.metric("mtplx:slow_readers_total") == 0
