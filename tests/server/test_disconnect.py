"""A client that goes frees its place at once, whatever its request is doing, and what was done for it counts."""

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.conftest import Client, StartServer
from tests.server.engines import MODEL
from tests.server.sockets import asked
from tests.server.steppers import WatchedEngine

LONG = {"model": MODEL, "prompt": "abc", "max_tokens": 4000}  # more than a test could wait for
LONG_PROMPT = {"model": MODEL, "prompt": "a" * 3000, "max_tokens": 1000}

Phase = tuple[dict[str, Any], Callable[[Client], bool], str]


def is_running(client: Client) -> bool:
    return client.metric("mtplx:num_requests_running") == 1


def is_decoding(client: Client) -> bool:
    return client.metric("mtplx:generation_tokens_total") > 0


def is_waiting(client: Client) -> bool:
    return client.metric("mtplx:num_requests_waiting") == 1


def num_aborted(client: Client) -> float:
    return client.metric("mtplx:request_success_total", finished_reason="abort")


PHASES: dict[str, Phase] = {
    "processing the prompt": (LONG_PROMPT, is_running, "prompt"),
    "processing the prompt of a stream": ({**LONG_PROMPT, "stream": True}, is_running, "prompt"),
    "decoding": (LONG, is_decoding, "output"),
    "decoding a stream": ({**LONG, "stream": True}, is_decoding, "output"),
    "drafting": ({**LONG, "drafter": "ngram", "speculative_depth": 4}, is_decoding, "output"),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("keep_alive_s", [0, 0.05])
def test_leaving_frees_everything_before_the_next_step(
    start_server: StartServer, phase: str, keep_alive_s: float
) -> None:
    body, is_reached, cancelled = PHASES[phase]
    engine = WatchedEngine(pace_s=0.01)
    client = start_server(engine, max_running=1, keep_alive_s=keep_alive_s)
    with asked(client, body):
        client.wait_for(is_reached)
    client.wait_for(lambda client: num_aborted(client) == 1)
    assert engine.stepper.calls[-1] == ("abort", 0)  # and no step after it
    assert client.metric("mtplx:cancelled_requests_total", phase=cancelled) == 1
    assert client.metric("mtplx:cancelled_requests_total") == 1
    num_tokens = client.metric("mtplx:generation_tokens_total")
    assert num_tokens == client.metric("mtplx:cancelled_generation_tokens_total")
    assert num_tokens == client.metric("mtplx:request_generation_tokens_sum")
    assert client.complete(prompt="abc", max_tokens=2).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep_alive_s", [0, 0.05])
def test_leaving_the_queue_frees_the_place_in_it_and_nothing_else(
    start_server: StartServer, stream: bool, keep_alive_s: float
) -> None:
    engine = WatchedEngine(pace_s=0.01)
    client = start_server(engine, max_running=1, keep_alive_s=keep_alive_s)
    with asked(client, LONG):
        client.wait_for(is_running)
        with asked(client, {**LONG, "stream": stream}):
            client.wait_for(is_waiting)
        client.wait_for(lambda client: num_aborted(client) == 1)
        assert ("abort", 1) in engine.stepper.calls
        assert is_running(client)
        assert client.metric("mtplx:cancelled_requests_total", phase="prompt") == 1


def test_coming_and_going_again_and_again_leaves_nothing_behind(start_server: StartServer) -> None:
    client = start_server(WatchedEngine(pace_s=0.001), max_running=1)
    client.complete(prompt="abc", max_tokens=2)  # starts the thread that reads prompts
    threads = set(threading.enumerate())
    for number in range(50):
        with asked(client, {**LONG, "stream": number % 2 == 0}):
            client.wait_for(is_running)
        client.wait_for(lambda client, number=number: num_aborted(client) == number + 1)
    load = client.get("/health").json()["load"]
    assert (load["num_running"], load["num_waiting"]) == (0, 0)
    assert set(threading.enumerate()) == threads
    assert client.metric("mtplx:generation_tokens_total") == client.metric("mtplx:request_generation_tokens_sum")


def test_leaving_while_the_body_is_sent_is_told_quietly(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nX-Request-Id: leaver\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
        client.wait_for(lambda _: any("leaver" in message for message in caplog.messages))
    [line] = [message for message in caplog.messages if "leaver" in message]
    assert line.endswith(" 499 leaver")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
