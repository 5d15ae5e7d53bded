"""POST /v1/completions, whole and streamed."""

from dataclasses import replace

import pytest

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine
from tests.fakes import ByteTokenizer
from tests.server.conftest import Client, StartServer, events
from tests.server.engines import CONTEXT_LENGTH, MODEL, letter_engine
from tests.server.steppers import ScriptedStepper, completion, engine_with


class FillingTokenizer(ByteTokenizer):
    """Has tokens for filling in the middle, where others have control characters."""

    def vocabulary(self) -> dict[int, str]:
        return super().vocabulary() | {1: "<fim_prefix>", 2: "<fim_suffix>", 3: "<fim_middle>"}


def filling_engine(settings: Settings) -> LoadedEngine:
    engine = letter_engine()(settings)
    return replace(engine, model=replace(engine.model, tokenizer=FillingTokenizer()))


def test_a_whole_reply_has_the_shape_of_openais(client: Client) -> None:
    response = client.complete(prompt="abc", max_tokens=40, temperature=0)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["model"] == MODEL
    assert body["system_fingerprint"].startswith("fp_")
    [choice] = body["choices"]
    assert len(choice.pop("text")) == 40
    assert choice == {"index": 0, "logprobs": None, "finish_reason": "length"}
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 40,
        "total_tokens": 43,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


@pytest.mark.parametrize("stream", [False, True])
def test_usage_tells_how_much_of_the_prompt_was_known(start_server: StartServer, stream: bool) -> None:
    end = completion(num_prompt_tokens=3, num_cached_tokens=2)
    client = start_server(engine_with(ScriptedStepper(["text"], end)))
    if stream:
        response = client.complete(prompt="abc", stream=True, stream_options={"include_usage": True})
        usage = events(response)[-1]["usage"]
    else:
        usage = client.complete(prompt="abc").json()["usage"]
    assert usage["prompt_tokens"] == 3
    assert usage["prompt_tokens_details"]["cached_tokens"] == 2


def test_the_default_is_16_tokens(client: Client) -> None:
    assert client.complete(prompt="abc").json()["usage"]["completion_tokens"] == 16


def test_the_default_shrinks_to_the_room_that_the_context_leaves(client: Client) -> None:
    body = client.complete(prompt="a" * (CONTEXT_LENGTH - 3)).json()
    assert body["usage"]["completion_tokens"] == 3
    assert body["choices"][0]["finish_reason"] == "length"


def test_token_ids_are_a_prompt_too(client: Client) -> None:
    as_text = client.complete(prompt="abc", temperature=0).json()
    as_tokens = client.complete(prompt=list(b"abc"), temperature=0).json()
    assert as_tokens["choices"] == as_text["choices"]


def test_one_prompt_in_a_list_is_that_prompt(client: Client) -> None:
    assert client.complete(prompt=["abc"]).json()["usage"]["prompt_tokens"] == 3
    assert client.complete(prompt=[[97, 98]]).json()["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 7}, {"seed": -1, "top_p": 0.9, "stop": ["g", "hh"]}])
def test_a_stream_says_what_the_whole_reply_says(client: Client, fields: dict[str, object]) -> None:
    fields = {**fields, "max_tokens": 50, "drafter": "ngram", "speculative_depth": 3}  # the same rounds each time
    whole = client.complete(prompt="abc", **fields).json()
    chunks = events(client.complete(prompt="abc", stream=True, **fields))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["metrics"] == whole["metrics"]
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]} == {None}
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1


def test_usage_comes_in_a_last_chunk_without_choices_when_asked_for(client: Client) -> None:
    response = client.complete(prompt="abc", stream=True, stream_options={"include_usage": True})
    *chunks, last = events(response)
    assert all(chunk["usage"] is None and "metrics" not in chunk for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 19
    assert last["metrics"]["speculative_decoding"]["num_spec_tokens"] == 16


def test_chunks_do_not_speak_of_usage_when_it_is_not_asked_for(client: Client) -> None:
    chunks = events(client.complete(prompt="abc", stream=True))
    assert not any("usage" in chunk for chunk in chunks)
    assert ["metrics" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_a_suffix_asks_for_the_text_before_it(start_server: StartServer) -> None:
    client = start_server(filling_engine)
    body = client.complete(prompt="abc", suffix="hg", max_tokens=5).json()
    assert body["usage"]["prompt_tokens"] == len("abc") + len("hg") + 3
    of_tokens = client.complete(prompt=[*b"abc"], suffix="hg", max_tokens=5, temperature=0).json()
    assert (
        of_tokens["choices"]
        == client.complete(prompt="abc", suffix="hg", max_tokens=5, temperature=0).json()["choices"]
    )


def test_a_stream_is_not_to_be_stored_or_buffered(client: Client) -> None:
    headers = client.complete(prompt="abc", stream=True).headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    assert headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("depth", [0, 1, 3, 8])
def test_no_depth_changes_greedy_text(client: Client, depth: int) -> None:
    fields = {"prompt": "abc", "max_tokens": 100, "temperature": 0}
    plain = client.complete(drafter="none", **fields).json()
    drafted = client.complete(speculative_depth=depth, drafter="ngram", **fields).json()
    assert drafted["choices"] == plain["choices"]


def test_the_metrics_of_speculation_agree_with_each_other(client: Client) -> None:
    body = client.complete(prompt="abc", max_tokens=100, temperature=0, speculative_depth=4).json()
    told = body["metrics"]["speculative_decoding"]
    histogram = told["acceptance_histogram"]
    assert len(histogram) == told["num_spec_tokens"] + 1 == 5
    assert sum(histogram) == told["num_spec_steps"] > 0
    assert sum(number * times for number, times in enumerate(histogram)) == told["num_accepted_draft_tokens"] > 0
    assert told["draft_acceptance_rate"] == told["num_accepted_draft_tokens"] / told["num_draft_tokens"]
    assert told["mean_acceptance_length"] == 1 + told["num_accepted_draft_tokens"] / told["num_spec_steps"]


def test_plain_decoding_reports_that_nothing_was_drafted(client: Client) -> None:
    body = client.complete(prompt="abc", speculative_depth=0).json()
    assert body["metrics"]["speculative_decoding"] == {
        "mean_acceptance_length": 1.0,
        "draft_acceptance_rate": 0.0,
        "acceptance_histogram": [0],
        "num_spec_steps": 0,
        "num_accepted_draft_tokens": 0,
        "num_draft_tokens": 0,
        "num_spec_tokens": 0,
    }


def test_text_ends_before_a_stop_string(client: Client) -> None:
    text = client.complete(prompt="abc", max_tokens=40, temperature=0).json()["choices"][0]["text"]
    stop = text[10:13]
    [choice] = client.complete(prompt="abc", max_tokens=40, temperature=0, stop=stop).json()["choices"]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_a_bias_of_100_forces_a_token(client: Client) -> None:
    body = client.complete(prompt="abc", max_tokens=5, logit_bias={"122": 100}).json()
    assert body["choices"][0]["text"] == "zzzzz"


def test_fields_that_change_nothing_and_nulls_are_accepted(client: Client) -> None:
    response = client.complete(
        prompt="abc", n=1, best_of=1, echo=False, logprobs=None, suffix=None, user="me", stop=None, temperature=None
    )
    assert response.status_code == 200


def test_an_engine_that_fails_before_the_reply_gives_a_status(client: Client) -> None:
    response = client.complete(prompt="abc!", max_tokens=3)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "not finite" in response.json()["error"]["message"]


def test_an_engine_that_fails_during_a_stream_ends_it_with_an_error(client: Client) -> None:
    response = client.complete(prompt="abc", max_tokens=9, logit_bias={str(ord("!")): 100}, stream=True)
    assert response.status_code == 200
    first, last = (line for line in response.text.splitlines() if line)
    assert '"text":"!"' in first
    assert last.startswith('data: {"error":')
    assert "[DONE]" not in response.text
