"""POST /v1/chat/completions, whole and streamed. That the endpoints share their engine is told by the other one."""

import pytest

from tests.server.conftest import Client, events
from tests.server.engines import CONTEXT_LENGTH, MODEL


def test_a_whole_reply_has_the_shape_of_openais(client: Client) -> None:
    body = client.chat("Hi", max_completion_tokens=8).json()
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    [choice] = body["choices"]
    assert len(choice["message"].pop("content")) == 8
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "refusal": None, "annotations": []},
        "logprobs": None,
        "finish_reason": "length",
    }
    assert body["usage"]["prompt_tokens"] == len("<user>Hi\n<assistant>")
    assert body["metrics"]["speculative_decoding"]["num_spec_tokens"] == 16


def test_a_stream_says_the_role_first_and_then_what_the_whole_reply_says(client: Client) -> None:
    fields = {"max_tokens": 30, "seed": 5, "drafter": "ngram", "speculative_depth": 3}  # the same rounds each time
    whole = client.chat("Hi", **fields).json()
    chunks = events(client.chat("Hi", stream=True, **fields))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert all(list(delta) == ["content"] for delta in deltas[1:-1])
    assert "".join(delta["content"] for delta in deltas[:-1]) == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["metrics"] == whole["metrics"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_usage_comes_in_a_last_chunk_without_choices_when_asked_for(client: Client) -> None:
    *chunks, last = events(client.chat("Hi", max_tokens=4, stream=True, stream_options={"include_usage": True}))
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 4)


def test_the_default_is_all_the_room_that_the_context_leaves(client: Client) -> None:
    message = "a" * (CONTEXT_LENGTH - 100)
    usage = client.chat(message).json()["usage"]
    assert usage["total_tokens"] == CONTEXT_LENGTH


def test_a_conversation_goes_through_the_template_with_developers_as_system(client: Client) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "three", "refusal": None, "annotations": [], "tool_calls": None},
        {"role": "user", "content": "four"},
    ]
    response = client.post("/v1/chat/completions", json={"model": MODEL, "messages": messages, "max_tokens": 1})
    rendered = "<system>Be brief.\n<user>One\ntwo\n<assistant>three\n<user>four\n<assistant>"
    assert response.json()["usage"]["prompt_tokens"] == len(rendered)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"a": "b"}, "store": True, "service_tier": "auto", "user": "me", "safety_identifier": "x"},
        {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "parallel_tool_calls": True},
        {"n": 1, "logprobs": False, "top_logprobs": 0, "tools": [], "tool_choice": "none"},
        {"response_format": {"type": "text"}, "modalities": ["text"], "verbosity": "medium", "prediction": None},
        {"stream_options": {"include_obfuscation": False, "include_usage": False}, "stream": True},
    ],
)
def test_fields_that_change_nothing_are_accepted(client: Client, fields: dict[str, object]) -> None:
    assert client.chat("Hi", max_tokens=1, **fields).status_code == 200
