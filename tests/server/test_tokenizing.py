"""POST /tokenize, POST /detokenize and GET /tokenizer_info, as vLLM has them."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine
from mtplx.server.tokenizing import text_of
from tests.fakes import EOS, ByteTokenizer
from tests.server.conftest import DEADLINE_S, Client, StartServer, error_of
from tests.server.engines import CONTEXT_LENGTH, MODEL, VOCAB_SIZE, letter_engine

CHAT = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
RENDERED = "<system>Be brief.\n<user>Hi\n"


def tokenize(client: Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/tokenize", json=fields)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def text(body: dict[str, Any]) -> str:
    return bytes(body["tokens"]).decode()


def test_a_prompt_becomes_tokens(client: Client) -> None:
    reply = tokenize(client, model=MODEL, prompt="añb")
    tokens = list("añb".encode())
    assert reply == {"count": 4, "max_model_len": CONTEXT_LENGTH, "tokens": tokens, "token_strs": None}


def test_it_may_be_empty_or_exceed_the_context(client: Client) -> None:
    assert tokenize(client, prompt="")["count"] == 0
    assert tokenize(client, prompt="a" * 3 * CONTEXT_LENGTH)["count"] == 3 * CONTEXT_LENGTH


def test_tokens_are_spelled_if_asked_for(client: Client) -> None:
    assert tokenize(client, prompt="abc", return_token_strs=True)["token_strs"] == ["a", "b", "c"]


def test_a_chat_becomes_the_tokens_of_its_prompt(client: Client) -> None:
    chat = client.post("/v1/chat/completions", json={"model": MODEL, "messages": CHAT, "max_tokens": 1}).json()
    reply = tokenize(client, messages=CHAT)
    assert text(reply) == f"{RENDERED}<assistant>"
    assert reply["count"] == chat["usage"]["prompt_tokens"]


def test_a_chat_may_end_with_its_last_message_or_leave_it_open(client: Client) -> None:
    assert text(tokenize(client, messages=CHAT, add_generation_prompt=False)) == RENDERED
    to_continue = [*CHAT, {"role": "assistant", "content": "Well"}]
    assert text(tokenize(client, messages=to_continue, continue_final_message=True)) == f"{RENDERED}<assistant>Well"


def test_the_prompt_of_a_chat_tells_of_its_tools(client: Client) -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
    assert "look_up" in text(tokenize(client, messages=CHAT, tools=[tool]))
    assert text(tokenize(client, messages=CHAT, tools=None)) == f"{RENDERED}<assistant>"


def test_the_tokenizer_adds_tokens_of_its_own_to_prompts_alone_unless_told(start_server: StartServer) -> None:
    class Beginning(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [EOS] * add_special_tokens + super().encode(text)

    client = start_server(with_tokenizer(Beginning()))
    begins = {
        (field, given): tokenize(client, **{field: value}, add_special_tokens=given)["tokens"][0] == EOS
        for field, value in (("prompt", "abc"), ("messages", CHAT))
        for given in (None, True, False)
    }
    assert [key for key, begin in begins.items() if begin] == [("prompt", None), ("prompt", True), ("messages", True)]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({}, "prompt", "missing_required_parameter"),
        ({"prompt": "a", "messages": CHAT}, "messages", "invalid_value"),
        ({"prompt": 5}, "prompt", "invalid_type"),
        ({"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt", "invalid_value"),
        ({"prompt": "a", "tools": [{"type": "function", "function": {"name": "a"}}]}, "tools", "invalid_value"),
        ({"messages": CHAT, "tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"prompt": "a", "max_tokens": 5}, "max_tokens", "unknown_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
        ({"messages": CHAT, "continue_final_message": True}, "continue_final_message", "invalid_value"),
        (
            {"messages": CHAT, "continue_final_message": True, "add_generation_prompt": True},
            "add_generation_prompt",
            "invalid_value",
        ),
        ({"messages": CHAT, "chat_template": "{{ messages }}"}, "chat_template", "unsupported_parameter"),
        ({"messages": CHAT, "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "invalid_value"),
    ],
)
def test_what_cannot_be_tokenized_is_refused_by_field(
    client: Client, fields: dict[str, Any], param: str, code: str
) -> None:
    error = error_of(client.post("/tokenize", json=fields), 400)
    assert (error["param"], error["code"]) == (param, code)


def test_another_model_is_not_found(client: Client) -> None:
    for path, fields in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [97]})):
        assert error_of(client.post(path, json={"model": "gpt", **fields}), 404)["code"] == "model_not_found"


@pytest.mark.parametrize("prompt", ["", "añb", "<assistant>Well", " a  b "])
def test_tokens_become_the_text_they_came_from(client: Client, prompt: str) -> None:
    tokens = tokenize(client, prompt=prompt)["tokens"]
    assert client.post("/detokenize", json={"model": MODEL, "tokens": tokens}).json() == {"prompt": prompt}


def test_special_tokens_are_spelled_between_texts_of_their_own(client: Client) -> None:
    tokens = [EOS, *b"ab", EOS, EOS, *b"c"]
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "<end>ab<end><end>c"}


def test_an_id_that_stands_for_no_token_adds_nothing() -> None:
    class Sparse(ByteTokenizer):
        def bytes_of(self, token: int) -> bytes:
            return super().bytes_of(token) if token < EOS else b""

    assert text_of([97, EOS + 1, 98], Sparse()) == "ab"


@pytest.mark.parametrize("tokens", [[VOCAB_SIZE], [-1], [2**31], ["a"], [1.5], [True], "abc", None, [[97]]])
def test_what_is_no_list_of_token_ids_is_refused(client: Client, tokens: object) -> None:
    assert error_of(client.post("/detokenize", json={"tokens": tokens}), 400)["param"].startswith("tokens")


def test_a_long_text_keeps_nobody_waiting(start_server: StartServer) -> None:
    is_encoding, may_go_on = threading.Event(), threading.Event()

    class Patient(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            is_encoding.set()
            assert may_go_on.wait(DEADLINE_S)
            return super().encode(text)

    client = start_server(with_tokenizer(Patient()))
    waiting = threading.Thread(target=tokenize, args=(client,), kwargs={"prompt": "abc"})
    waiting.start()
    assert is_encoding.wait(DEADLINE_S)
    assert client.get("/health").status_code == 200
    may_go_on.set()
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()


def test_the_special_tokens_are_told(client: Client) -> None:
    told = {"bos_token": None, "eos_token": "<end>", "pad_token": None, "unk_token": None}
    assert client.get("/tokenizer_info").json() == told


def with_tokenizer(tokenizer: ByteTokenizer) -> Any:
    """What loads the letters' engine, with a tokenizer of its own."""

    def load_engine(settings: Settings) -> LoadedEngine:
        engine = letter_engine()(settings)
        return replace(engine, model=replace(engine.model, tokenizer=tokenizer))

    return load_engine
