"""Ctrl-C and SIGTERM end a real process soon and cleanly, whatever it is doing."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import DEADLINE_S
from tests.server.engines import MODEL

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])


class Process:
    """A server process that listens; its log so far is in `log`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.log = ""
        self.read_until("listening on")
        [self.url] = re.findall(r"http://\S+", self.log)

    def read_until(self, words: str) -> None:
        assert self._process.stderr is not None
        while words not in self.log:
            line = self._process.stderr.readline()
            assert line, self.log
            self.log += line

    def end_with(self, sent: signal.Signals) -> int:
        """The exit status after that signal; fails if it takes long."""
        self._process.send_signal(sent)
        return self.wait()

    def wait(self) -> int:
        _, rest = self._process.communicate(timeout=DEADLINE_S)
        self.log += rest
        return self._process.returncode

    def signal(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)


@contextmanager
def started(pace_s: float, load_s: float = 0.0, grace_s: float = 0.5) -> Iterator[Process]:
    command = [sys.executable, "-m", "tests.server.process", str(pace_s), str(load_s), str(grace_s)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


def read_stream(url: str, max_tokens: int, process: Process, sent: signal.Signals) -> list[str]:
    """The events of a stream during which the signal comes."""
    body = {"model": MODEL, "prompt": "abc", "max_tokens": max_tokens, "stream": True, "speculative_depth": 0}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=DEADLINE_S) as response:
        lines = response.iter_lines()
        received = [next(lines)]
        process.signal(sent)
        return [line.removeprefix("data: ") for line in [*received, *lines] if line]


@BOTH
def test_an_idle_server_ends(sent: signal.Signals) -> None:
    with started(pace_s=0) as process:
        process.read_until("serving")
        assert process.end_with(sent) == 0
        assert "Traceback" not in process.log


@BOTH
def test_a_server_that_is_loading_ends(sent: signal.Signals) -> None:
    with started(pace_s=0, load_s=600) as process:
        assert httpx.get(f"{process.url}/health").json()["status"] == "loading"
        assert process.end_with(sent) == 0
        assert "Traceback" not in process.log


@BOTH
def test_a_stream_that_can_end_within_the_grace_period_does(sent: signal.Signals) -> None:
    with started(pace_s=0.02) as process:
        process.read_until("serving")
        *chunks, done = read_stream(process.url, 8, process, sent)
        assert done == "[DONE]"
        assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == "length"
        assert process.wait() == 0
        assert "Traceback" not in process.log


@BOTH
def test_a_stream_that_cannot_ends_with_an_error(sent: signal.Signals) -> None:
    with started(pace_s=0.02) as process:
        process.read_until("serving")
        *_, last = read_stream(process.url, 4000, process, sent)
        assert "shutting down" in json.loads(last)["error"]["message"]
        assert process.wait() == 0
        assert "Traceback" not in process.log


def test_a_whole_reply_that_cannot_be_had_in_time_is_answered_503() -> None:
    body = {"model": MODEL, "prompt": "abc", "max_tokens": 4000}
    with started(pace_s=0.02) as process, ThreadPoolExecutor() as pool:
        process.read_until("serving")
        reply = pool.submit(httpx.post, f"{process.url}/v1/completions", json=body, timeout=DEADLINE_S)
        while httpx.get(f"{process.url}/health").json()["load"]["num_running"] == 0:
            assert not reply.done()
        assert process.end_with(signal.SIGTERM) == 0
        assert reply.result().status_code == 503


def test_a_body_that_is_half_sent_is_not_waited_for() -> None:
    with started(pace_s=0, grace_s=600) as process:
        process.read_until("serving")
        host, port = process.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n".encode())
            assert b"100 Continue" in connection.recv(1000)  # it is being read
            connection.sendall(b'{"model": ')
            assert process.end_with(signal.SIGTERM) == 0
            assert b" 503 " in connection.recv(1000)
        assert "Traceback" not in process.log
        assert "CancelledError" not in process.log


def test_a_second_ctrl_c_does_not_wait_for_the_grace_period() -> None:
    with started(pace_s=0.02) as process:
        process.read_until("serving")
        body = {"model": MODEL, "prompt": "abc", "max_tokens": 4000, "stream": True}
        with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=DEADLINE_S) as response:
            lines = response.iter_lines()
            next(lines)
            process.signal(signal.SIGINT)
            process.read_until("shutting down")
            assert process.end_with(signal.SIGINT) == 130
        assert "Traceback" not in process.log


def test_a_port_in_use_is_told_in_one_line() -> None:
    with started(pace_s=0) as process:
        port = process.url.rpartition(":")[2]
        command = [sys.executable, "-m", "mtplx", "serve", "--port", port]
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
        assert second.returncode == 1
        [line] = second.stderr.splitlines()
        assert line == f"mtplx: cannot listen on 127.0.0.1, port {port}: Address already in use"
