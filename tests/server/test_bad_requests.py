"""What cannot be served is refused with OpenAI's error body, which names the field, and does no harm."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine
from mtplx.server.schemas.sampling import MAX_SALT_CHARS
from tests.fakes import ByteTokenizer
from tests.server.conftest import Client, StartServer, error_of
from tests.server.engines import CONTEXT_LENGTH, MODEL, VOCAB_SIZE, letter_engine

SHARED = [
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"ignore_eos": 1}, "ignore_eos"),
    ({"num_draft_tokens": 2, "speculative_depth": 3}, "num_draft_tokens"),
    ({"n": True}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 2**31}, "max_tokens"),
    ({"max_tokens": "8"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 2**31}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"five": 1}}, "logit_bias"),
    ({"logit_bias": {"-5": 1}}, "logit_bias"),
    ({"logit_bias": {"5": "1"}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"speculative_depth": -1}, "speculative_depth"),
    ({"speculative_depth": 17}, "speculative_depth"),
    ({"speculative_depth": 17, "drafter": "none"}, "speculative_depth"),
    ({"speculative_depth": 2**31}, "speculative_depth"),
    ({"speculative_depth": "3"}, "speculative_depth"),
    ({"drafter": "oracle"}, "drafter"),
    ({"drafter": "self"}, "drafter"),
    ({"speculative_depth": "deep"}, "speculative_depth"),
    ({"speculative_depth": True}, "speculative_depth"),
    ({"speculative_depth": 1.5}, "speculative_depth"),
    ({"acceptance": "all"}, "acceptance"),
    ({"prediction": "abc"}, "prediction"),
    ({"prediction": {"content": "abc"}}, "prediction.type"),
    ({"prediction": {"type": "text", "content": "abc"}}, "prediction.type"),
    ({"prediction": {"type": "content"}}, "prediction.content"),
    ({"prediction": {"type": "content", "content": [{"type": "image_url"}]}}, "prediction.content[0].type"),
    ({"prediction": {"type": "content", "content": "a", "weight": 1}}, "prediction.weight"),
    ({"prediction": {"type": "content", "content": "a" * (CONTEXT_LENGTH + 1)}}, "prediction"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_everything": True}}, "stream_options.include_everything"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"priority": 1.5}, "priority"),
    ({"priority": "high"}, "priority"),
    ({"priority": 2**31}, "priority"),
    ({"priority": -(2**31)}, "priority"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"cache_salt": "s" * (MAX_SALT_CHARS + 1)}, "cache_salt"),
    ({"timeout_s": 0}, "timeout_s"),
    ({"timeout_s": -1}, "timeout_s"),
    ({"timeout_s": "5"}, "timeout_s"),
    ({"user": 5}, "user"),
    ({"surprise": 1}, "surprise"),
]

A_TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(("fields", "param"), SHARED)
def test_both_endpoints_refuse_and_name_the_field(client: Client, fields: dict[str, Any], param: str) -> None:
    for response in (client.complete(prompt="abc", **fields), client.chat("Hi", **fields)):
        error = error_of(response, 400)
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert param in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": ["a", 5]}, "prompt[1]"),
        ({"prompt": [[1], ["b"]]}, "prompt[1]"),
        ({"prompt": [[1], [VOCAB_SIZE]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [VOCAB_SIZE]}, "prompt"),
        ({"prompt": "a", "best_of": 0}, "best_of"),
        ({"prompt": "a", "best_of": 2, "n": 3}, "best_of"),
        ({"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": "a", "best_of": 129}, "best_of"),
        ({"prompt": "a", "echo": 1}, "echo"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "messages": []}, "messages"),
    ],
)
def test_completions_refuse_and_name_the_field(client: Client, fields: dict[str, Any], param: str) -> None:
    assert error_of(client.complete(**fields), 400)["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}]},
            "messages[0].content[0].cache_control",
        ),
        ({"messages": [{"role": "ghost", "content": "5"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "5"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "function", "content": "5"}]}, "messages[0].name"),
        ({"messages": [{"role": "user", "content": "Hi", "tool_call_id": "1"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "Hi", "refusal": "No"}]}, "messages[0].refusal"),
        ({"messages": [{"role": "user", "content": [{"type": "refusal"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "Hi", "audio": {"id": "1"}}]}, "messages[0].audio"),
        ({"messages": [{"role": "user", "content": "Hi", "mood": "good"}]}, "messages[0].mood"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]}]},
            "messages[0].tool_calls[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "add", "arguments": "[1]"}}]},
            "messages[0].function_call.arguments",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [A_TOOL, A_TOOL]}, "tools[1].function.name"),
        ({"tools": [A_TOOL], "guided_regex": "a"}, "guided_regex"),
        ({"tools": [A_TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "json"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": 5, "max_tokens": 6}, "max_tokens"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"prompt": "abc"}, "prompt"),
    ],
)
def test_chat_refuses_and_names_the_field(client: Client, fields: dict[str, Any], param: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}
    assert error_of(client.post("/v1/chat/completions", json=body), 400)["param"] == param


def test_all_unknown_fields_are_named(client: Client) -> None:
    assert "unknown fields: one, two" in error_of(client.complete(prompt="a", one=1, two=2), 400)["message"]


LONG = "x" * 100_000
MANY: dict[str, Any] = dict.fromkeys(map(str, range(10_000)), 1)


@pytest.mark.parametrize(
    "fields",
    [
        MANY,
        {LONG: 1},
        {"model": LONG},
        {"stream": True, "stream_options": MANY},
        {"messages": [{"role": "user", "content": "Hi", **MANY}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", **MANY, LONG: 1}]}]},
        {"messages": [1] * 10_000},
        {"metadata": MANY},
        {"metadata": {LONG: 1}},
        {"logit_bias": {LONG: 1}},
        {"logit_bias": {"9" * 5000: 1}},
        {"drafter": LONG},
        {"messages": [{"role": LONG, "content": "Hi"}]},
    ],
)
def test_a_refusal_is_short_whatever_it_refuses(client: Client, fields: dict[str, Any]) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code in (400, 404)
    assert len(response.content) < 1500


def test_a_path_that_leads_nowhere_is_not_told_in_full(client: Client) -> None:
    assert len(client.get("/" + LONG[:5000]).content) < 500
    assert len(client.get("/v1/models/" + LONG[:5000]).content) < 500


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", "9" * 4300),
        ("max_completion_tokens", "9" * 4300),
        ("top_k", "9" * 4300),
        ("seed", "9" * 4300),
        ("speculative_depth", "9" * 4300),
        ("temperature", "9" * 4300),
        ("presence_penalty", "-" + "9" * 4300),
        ("logit_bias", '{"1": ' + "9" * 4300 + "}"),
        ("max_tokens", "9" * 10_000),
    ],
)
def test_a_number_of_thousands_of_digits_is_refused(client: Client, field: str, value: str) -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], field: "X"})
    body = body.replace('"X"', value)
    response = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert error_of(response, 400)["message"]
    assert len(response.content) < 500


def test_a_token_id_of_thousands_of_digits_is_refused(client: Client) -> None:
    body = json.dumps({"model": MODEL, "prompt": ["X"]}).replace('"X"', "9" * 4300)
    response = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert error_of(response, 400)["param"] == "prompt"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"surprise": 1}, "unknown_parameter"),
        ({"stream_options": {"surprise": 1}}, "unknown_parameter"),
        ({"messages": [{"role": "user", "content": "Hi", "mood": 1}]}, "unknown_parameter"),
        ({"messages": [{"role": "assistant", "content": "Hi", "audio": {"id": "1"}}]}, "unsupported_parameter"),
        ({"web_search_options": {}}, "unsupported_parameter"),
        ({"tools": [{}]}, "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported_value"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter"),
        ({"max_tokens": "8"}, "invalid_type"),
        ({"max_tokens": 1.5}, "invalid_type"),
        ({"messages": 5}, "invalid_type"),
        ({"stop": 5}, "invalid_type"),
        ({"temperature": 3}, "invalid_value"),
        ({"drafter": "oracle"}, "invalid_value"),
    ],
)
def test_a_refusal_has_openais_code(client: Client, fields: dict[str, Any], code: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}
    assert error_of(client.post("/v1/chat/completions", json=body), 400)["code"] == code


def test_a_refusal_says_what_is_supported(client: Client) -> None:
    error = error_of(client.chat("Hi", modalities=["audio"]), 400)
    assert error["message"] == 'modalities: only ["text"] is supported by this server'


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
def test_an_encoded_body_is_refused_by_its_encoding(client: Client, encoding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = client.post("/v1/completions", content=b"\x1f\x8b", headers=headers)
    assert encoding in error_of(response, 415)["message"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"model": NaN}', b'{"a": "\\ud800"}', b"[" * 100_000],
)
def test_a_body_that_is_no_json_object_is_refused(client: Client, content: bytes) -> None:
    response = client.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    error_of(response, 400)


def test_a_body_that_does_not_say_it_is_json_is_refused(client: Client) -> None:
    error_of(client.post("/v1/completions", data={"prompt": "abc"}), 415)


def test_a_missing_model_and_an_unknown_one_are_told_apart(client: Client) -> None:
    missing = error_of(client.post("/v1/completions", json={"prompt": "a"}), 400)
    unknown = error_of(client.complete(prompt="a", model="gpt-4"), 404)
    assert (missing["param"], missing["code"]) == ("model", "missing_required_parameter")
    assert (unknown["param"], unknown["code"]) == ("model", "model_not_found")


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens"), [(CONTEXT_LENGTH, 1), (CONTEXT_LENGTH - 9, 10), (CONTEXT_LENGTH + 5, None)]
)
def test_what_exceeds_the_context_is_refused_with_both_numbers(
    client: Client, num_prompt: int, max_tokens: int | None
) -> None:
    error = error_of(client.complete(prompt="a" * num_prompt, max_tokens=max_tokens), 400)
    assert error["code"] == "context_length_exceeded"
    assert str(CONTEXT_LENGTH) in error["message"]
    assert str(num_prompt) in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/completions", 405),
        ("PUT", "/v1/chat/completions", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/models/nobody/nothing", 404),
    ],
)
def test_a_wrong_method_and_a_wrong_path_get_error_bodies(client: Client, method: str, path: str, status: int) -> None:
    error_of(client.request(method, path), status)


def test_a_text_that_cannot_fit_is_refused_without_being_tokenized(start_server: StartServer) -> None:
    class Unasked(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            raise AssertionError

    def load_engine(settings: Settings) -> LoadedEngine:
        engine = letter_engine()(settings)
        return replace(engine, model=replace(engine.model, tokenizer=Unasked()))

    client, text = start_server(load_engine), "é" * (CONTEXT_LENGTH // 2)
    for response, field in ((client.complete(prompt=text), "prompt"), (client.chat(text), "messages")):
        error = error_of(response, 400)
        assert (error["code"], error["param"]) == ("context_length_exceeded", field)
        assert str(CONTEXT_LENGTH) in error["message"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_what_exceeds_the_context_is_blamed_on_the_field_that_can_help(client: Client, field: str) -> None:
    long = "a" * CONTEXT_LENGTH
    prompt_alone = error_of(client.complete(prompt=list(long.encode())), 400)
    messages_alone = error_of(client.chat(long, **{field: 5}), 400)
    with_output = error_of(client.chat("Hi", **{field: CONTEXT_LENGTH}), 400)
    assert (prompt_alone["param"], messages_alone["param"], with_output["param"]) == ("prompt", "messages", field)
    assert "of output" not in prompt_alone["message"]
    assert f"up to {CONTEXT_LENGTH} of output" in with_output["message"]


def test_the_allowed_method_is_told(client: Client) -> None:
    assert client.get("/v1/completions").headers["allow"] == "POST"
