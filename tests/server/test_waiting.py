"""While a client waits for its stream: signs of life, and an error that still has a status of its own."""

import json
from typing import Any

import pytest

from mtplx.engine.errors import EngineError, TimedOutError
from tests.server.conftest import Client, StartServer, error_of, events
from tests.server.engines import MODEL, letter_engine
from tests.server.steppers import ScriptedStepper, completion, engine_with

COMMENT = ": keep-alive"
LATE = TimedOutError("the request took longer than 2 s, the most it may")
LONG = {"model": MODEL, "prompt": "abc", "max_tokens": 4000, "stream": True}


def failing(error: EngineError, *pieces: str) -> Any:
    """An engine that fails every request after those pieces of text."""
    return engine_with(ScriptedStepper(pieces, completion(reason="error", error=error)))


def test_a_stream_that_is_queued_is_kept_alive(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.02), max_running=1, keep_alive_s=0.05)
    with client.stream("POST", "/v1/completions", json=LONG) as first:
        lines = first.iter_lines()  # closes the stream when it is dropped
        next(lines)
        with client.stream("POST", "/v1/completions", json=LONG) as queued:
            assert queued.status_code == 200
            signs = queued.iter_lines()
            assert [next(signs) for _ in range(4)] == [COMMENT, "", COMMENT, ""]
            assert client.get("/health").json()["load"]["num_waiting"] == 1


def test_a_stream_whose_prompt_is_processed_is_kept_alive(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.02), keep_alive_s=0.05)
    with client.stream("POST", "/v1/completions", json={**LONG, "prompt": "a" * 3000, "max_tokens": 10}) as response:
        assert next(response.iter_lines()) == COMMENT


def test_comments_between_chunks_leave_the_text_as_it_is(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.1), keep_alive_s=0.02)
    fields = {"prompt": "abc", "max_tokens": 4, "temperature": 0, "speculative_depth": 0}
    response = client.complete(**fields, stream=True)
    assert COMMENT in response.text.split("\n\n")
    told = response.text.replace(f"{COMMENT}\n\n", "")
    chunks = [json.loads(line.removeprefix("data: ")) for line in told.splitlines() if line and "[DONE]" not in line]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == client.complete(**fields).json()["choices"][0]["text"]


def test_no_comments_are_sent_if_the_setting_says_so(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.1), keep_alive_s=0)
    assert len(events(client.complete(prompt="abc", max_tokens=4, stream=True, speculative_depth=0))) == 5


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(LATE, 504, "timeout"), (EngineError("request cmpl-1 met a bug"), 500, "engine_error")],
)
def test_an_error_before_the_first_text_has_its_status(
    start_server: StartServer, error: EngineError, status: int, code: str, stream: bool
) -> None:
    response = start_server(failing(error)).complete(prompt="abc", stream=stream)
    told = error_of(response, status)
    assert (told["message"], told["code"]) == (str(error), code)


def test_logits_that_are_not_finite_have_a_code_of_their_own(client: Client) -> None:
    for stream in (False, True):
        assert error_of(client.complete(prompt="abc!", stream=stream), 500)["code"] == "non_finite_logits"


def test_clients_are_told_not_to_repeat_by_themselves_what_took_too_long(start_server: StartServer) -> None:
    client = start_server(failing(LATE))
    assert client.complete(prompt="abc").headers["x-should-retry"] == "false"


def test_an_error_after_text_is_the_last_event(start_server: StartServer) -> None:
    response = start_server(failing(LATE, "one", "two")).complete(prompt="abc", stream=True)
    assert response.status_code == 200
    *chunks, last = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["one", "two"]
    assert last["error"]["code"] == "timeout"


def test_an_error_after_comments_is_the_last_event(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.1), keep_alive_s=0.02)
    response = client.complete(prompt="a" * 40 + "!", stream=True)
    assert response.status_code == 200
    *comments, last = [line for line in response.text.splitlines() if line]
    assert set(comments) == {COMMENT}
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "non_finite_logits"
