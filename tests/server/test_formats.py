"""Output keeps to what the request says, on both endpoints. The letters' model would write none of it by itself."""

import re

import pytest

from tests.server.conftest import Client

SCHEMA = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"], "additionalProperties": False}
FORMATS = [
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        r'{\s*"a"\s*:\s*"[bc]"\s*}',
    ),
    ({"guided_json": SCHEMA}, r'{\s*"a"\s*:\s*"[bc]"\s*}'),
    ({"structured_outputs": {"regex": "[x-z]{3}-[0-9]"}}, "[x-z]{3}-[0-9]"),
    ({"guided_regex": "[x-z]{3}-[0-9]"}, "[x-z]{3}-[0-9]"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"guided_grammar": 'root ::= [x-z] "-" (root | "end")'}, "([x-z]-)+end"),
]


PLANS: tuple[dict[str, object], ...] = (
    {"speculative_depth": 0},
    {"speculative_depth": 4, "drafter": "ngram"},
    {"speculative_depth": "auto"},
)


@pytest.mark.parametrize(("fields", "expected"), FORMATS)
def test_output_keeps_to_the_format_with_drafts_and_without(client: Client, fields: dict, expected: str) -> None:
    replies = [client.complete(prompt="hello", temperature=0, max_tokens=300, **fields, **more) for more in PLANS]
    texts = {reply.json()["choices"][0]["text"] for reply in replies}
    assert len(texts) == 1
    assert re.fullmatch(expected, texts.pop())
    [choice] = client.chat("hello", seed=1, **fields).json()["choices"]
    assert re.fullmatch(expected, choice["message"]["content"])
    assert choice["finish_reason"] == "stop"


def test_every_choice_keeps_to_the_format(client: Client) -> None:
    reply = client.complete(prompt="hello", n=5, seed=1, guided_regex="[x-z]{8}")
    texts = {choice["text"] for choice in reply.json()["choices"]}
    assert len(texts) == 5
    assert all(re.fullmatch("[x-z]{8}", text) for text in texts)


def test_a_grammar_that_becomes_too_much_on_the_way_is_the_clients_mistake(client: Client) -> None:
    branches = " | ".join(f'"a{number}"' for number in range(3000))
    reply = client.complete(prompt="hello", guided_grammar=f"start: /[ab]{{5}}/ ({branches})")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "guided_grammar"
    assert "make it simpler" in reply.json()["error"]["message"]
    assert client.get("/health").json()["status"] == "ok"
