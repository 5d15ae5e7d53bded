"""Clients come and go, and nothing of them stays: a thousand drops in every phase, and a short soak."""

import asyncio
import gc
import json
import os
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from mtplx.server.bench.serving.process import own_server
from tests.bench.process import num_open_files
from tests.bench.soak import soak
from tests.bench.soak_ledger import Counters, Drafts, Seen, discrepancies
from tests.server.conftest import Client, StartServer
from tests.server.engines import MODEL, letter_engine
from tests.tiny_models import tiny_model_folder

NUM_DROPS = 1000


def head(num_bytes: int) -> bytes:
    fields = ("Host: here", "Content-Type: application/json", f"Content-Length: {num_bytes}")
    return "\r\n".join(["POST /v1/completions HTTP/1.1", *fields, "", ""]).encode()


def request(**fields: object) -> bytes:
    body = json.dumps({"model": MODEL, "prompt": "abc", "max_tokens": 4000, **fields}).encode()
    return head(len(body)) + body


def send(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


def read_until(mark: bytes) -> Callable[[socket.socket], None]:
    def read(connection: socket.socket) -> None:
        connection.sendall(request(stream=True, prompt="a" * 1000, max_tokens=3000))
        received = b""
        while mark not in received:
            received += connection.recv(2**16)

    return read


PHASES: dict[str, Callable[[socket.socket], None]] = {
    "connected": lambda connection: None,
    "in the head": send(head(100)[:30]),
    "in the body": send(head(100) + b"{"),
    "all said, and a whole reply wanted": send(request()),
    "all said, and a stream wanted": send(request(stream=True)),
    "the stream's head has come": read_until(b"\r\n\r\n"),
    "text comes": read_until(b"data: "),
}


def drop(client: Client, count: int) -> None:
    for number in range(count):
        phase = list(PHASES.values())[number % len(PHASES)]
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
            phase(connection)


def num_tasks() -> int:
    return sum(isinstance(each, asyncio.Task) and not each.done() for each in gc.get_objects())


def is_idle(client: Client) -> bool:
    load = client.get("/health").json()["load"]
    return bool(load["num_running"] == load["num_waiting"] == 0)


def test_a_thousand_connects_and_drops_leave_memory_threads_tasks_and_files_as_they_were(
    start_server: StartServer,
) -> None:
    client = start_server(letter_engine(), max_running=4, max_waiting=2 * NUM_DROPS)

    def remaining() -> dict[str, int]:
        client.wait_for(is_idle)
        gc.collect()
        return {
            "blocks of memory": sys.getallocatedblocks(),
            "objects": len(gc.get_objects()),
            "threads": threading.active_count(),
            "open files": num_open_files(os.getpid()) or 0,
        }

    drop(client, NUM_DROPS // 10)
    # Whatever stayed of each drop in any one phase would be more than that; of memory, some blocks an object. Others in
    # this process may take something for good once, but not every time.
    allowed = defaultdict(lambda: NUM_DROPS // 10, {"blocks of memory": NUM_DROPS})
    grown = {}
    for _ in range(3):
        before, tasks_before = remaining(), num_tasks()
        drop(client, NUM_DROPS)
        client.wait_for(lambda client, most=tasks_before: num_tasks() <= most)
        after = remaining()
        grown = {name: after[name] - before[name] for name in before if after[name] - before[name] > allowed[name]}
        if not grown:
            break
    assert grown == {}
    assert client.metric("mtplx:request_success_total", finished_reason="abort") >= NUM_DROPS // len(PHASES)


@pytest.mark.slow
def test_a_short_soak_ends_with_all_counters_reconciled_and_all_answers_those_given_alone(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "llama")
    with own_server({"model": folder, "max_waiting": 8, "log_level": "error"}) as server:
        rows = soak(server, seconds=10, num_bodies=40)
    print(*rows, sep="\n")
    assert [row for row in rows if row.ok is False] == []
    values = {row.name: row.value for row in rows}
    for happened in ("answered", "bad, and refused", "left unheard", "turned away"):
        assert values[f"requests {happened}"], happened
    # How far a reply has come when its reader leaves is chance.
    assert any(values.get(f"requests {happened}") for happened in ("left waiting", "left while it was written"))


# ---- what a soak finds amiss ----------------------------------------------------------------------------------------

ANSWERED = Seen(0, "stop", True, "abc", 3, 8, Drafts(2, 4, 1))
LEFT_UNHEARD = Seen(1, None, False, "", 0, 8)
LEFT_WRITING = Seen(1, None, True, "ab", 2, 8)
PROMPT_TOKENS = {0: 10, 1: 20}


def counters(**changed: float) -> Counters:
    """Those of the request that was answered."""
    true = {
        **{"stop": 1, "length": 0, "abort": 0, "error": 0, "request_success_total": 1},
        **{"prompt_tokens_total": 10, "request_prompt_tokens_sum": 10, "request_prompt_tokens_count": 1},
        **{"generation_tokens_total": 3, "request_generation_tokens_sum": 3, "request_generation_tokens_count": 1},
        **{"time_to_first_token_seconds_count": 1, "e2e_request_latency_seconds_count": 1},
        **{"request_queue_time_seconds_count": 1, "spec_decode_num_drafts_total": 2},
        **{"spec_decode_num_draft_tokens_total": 4, "spec_decode_num_accepted_tokens_total": 1},
        **{"spec_decode_num_accepted_tokens_per_pos_total": 1, "spec_decode_num_failed_drafts_total": 0},
    }
    return {**true, **changed}


@pytest.mark.parametrize("name", counters())
def test_each_counter_must_be_exact_when_nobody_left(name: str) -> None:
    assert discrepancies(counters(), [ANSWERED], PROMPT_TOKENS) == []
    for error in (-1, 1):
        assert discrepancies(counters(**{name: counters()[name] + error}), [ANSWERED], PROMPT_TOKENS)


def test_a_request_that_nobody_heard_of_may_count_or_not() -> None:
    both = {"request_success_total": 2, "abort": 1, "request_prompt_tokens_sum": 30, "request_prompt_tokens_count": 2}
    ends = {"request_generation_tokens_count": 2, "e2e_request_latency_seconds_count": 2}
    counted = counters(**both, **ends, request_queue_time_seconds_count=2)
    for possible in (counters(), counted):
        assert discrepancies(possible, [ANSWERED, LEFT_UNHEARD], PROMPT_TOKENS) == []


def test_what_was_seen_of_a_request_must_have_been_counted() -> None:
    found = discrepancies(counters(), [ANSWERED, LEFT_WRITING], PROMPT_TOKENS)
    assert "request_success_total counted 1, seen 2 to 2" in found
    assert "prompt_tokens_total counted 10, seen 30 to 30" in found
    assert "generation_tokens_total counted 3, seen 5 to 11" in found
