"""Who drafts and how much, by what a request says and what the server does by default."""

from typing import Any

import pytest

from tests.server.conftest import Client, StartServer

PLAIN = {"drafter": "none", "speculative_depth": 0}
SEEDED = {"prompt": "abcabcabcabc", "max_tokens": 60, "temperature": 1, "seed": 7}
REPETITIVE = {"prompt": "abcabcabcabc", "max_tokens": 60, "temperature": 0}


def told(start_server: StartServer, settings: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """What is told of speculation in the reply to a request with these fields."""
    reply = start_server(**settings).complete(**REPETITIVE, **fields)
    speculation: dict[str, Any] = reply.json()["metrics"]["speculative_decoding"]
    return speculation


@pytest.mark.parametrize(
    ("settings", "fields", "depth"),
    [
        (PLAIN, {"speculative_depth": 5}, 5),
        (PLAIN, {"drafter": "ngram"}, 16),
        (PLAIN, {"speculative_depth": "auto"}, 16),
        (PLAIN, {"drafter": "auto", "speculative_depth": 3}, 3),
        ({}, {}, 16),
        ({"speculative_depth": 2}, {"speculative_depth": "auto"}, 16),
        (PLAIN, {"drafter": "ngram", "speculative_depth": 2}, 2),
        ({"speculative_depth": 0}, {"speculative_depth": 5}, 5),
        ({"drafter": "none", "speculative_depth": 4}, {"drafter": "ngram"}, 4),
        ({"speculative_depth": 0, "max_speculative_depth": 2}, {"drafter": "ngram"}, 2),
        ({"drafter": "none"}, {"speculative_depth": 5}, 5),
    ],
)
def test_a_request_that_asks_for_drafts_gets_them(
    start_server: StartServer, settings: dict[str, Any], fields: dict[str, Any], depth: int
) -> None:
    speculation = told(start_server, settings, fields)
    assert speculation["num_spec_tokens"] == depth
    assert speculation["num_draft_tokens"] > 0


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (PLAIN, {}),
        ({"drafter": "none"}, {}),
        ({}, {"drafter": "none"}),
        ({}, {"drafter": "none", "speculative_depth": 5}),
        ({}, {"speculative_depth": 0}),
        ({}, {"drafter": "ngram", "speculative_depth": 0}),
        (PLAIN, {"speculative_depth": 0}),
    ],
)
def test_a_request_that_asks_for_none_gets_none(
    start_server: StartServer, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    speculation = told(start_server, settings, fields)
    assert speculation["num_spec_tokens"] == speculation["num_draft_tokens"] == 0
    assert speculation["acceptance_histogram"] == [0]


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
def test_every_acceptance_rule_can_be_asked_for(client: Client, rule: str) -> None:
    reply = client.complete(**REPETITIVE, acceptance=rule, speculative_depth=3, drafter="ngram")
    assert reply.json()["choices"][0]["text"] == client.complete(**REPETITIVE).json()["choices"][0]["text"]


def test_a_seed_fixes_the_text_whatever_the_engine_chooses(client: Client) -> None:
    texts = {
        client.complete(**SEEDED, **fields).json()["choices"][0]["text"]
        for fields in ({}, {}, {}, {"drafter": "ngram"}, {"acceptance": "coupled", "speculative_depth": 0})
    }
    assert len(texts) == 1


@pytest.mark.parametrize("as_parts", [False, True])
@pytest.mark.parametrize("endpoint", ["complete", "chat"])
def test_a_prediction_is_drafted_from_and_changes_no_text(client: Client, endpoint: str, as_parts: bool) -> None:
    def ask(**fields: Any) -> dict[str, Any]:
        fields |= {"max_tokens": 40, "temperature": 0, "drafter": "ngram", "speculative_depth": 4}
        reply: dict[str, Any] = (
            client.chat("Hi", **fields) if endpoint == "chat" else client.complete(prompt="h", **fields)
        ).json()
        return reply

    def text(reply: dict[str, Any]) -> str:
        [choice] = reply["choices"]
        said: str = choice["message"]["content"] if endpoint == "chat" else choice["text"]
        return said

    alone = ask()
    said = text(alone)
    parts = [{"type": "text", "text": said[:10]}, {"type": "text", "text": said[10:]}]
    guided = ask(prediction={"type": "content", "content": parts if as_parts else said})
    assert text(guided) == said
    accepted = [reply["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] for reply in (alone, guided)]
    assert accepted[1] > accepted[0]


def test_health_and_metrics_tell_what_was_learnt(start_server: StartServer) -> None:
    client = start_server()
    assert client.get("/health").json()["speculation"] == {"verify_ms": {}, "draft_ms": {}, "survival": {}}
    client.complete(prompt="abc", max_tokens=60, temperature=0, speculative_depth=2, drafter="ngram")
    client.complete(prompt="abc", max_tokens=60, temperature=0)
    learnt = client.get("/health").json()["speculation"]
    assert learnt["verify_ms"].keys() >= {"1", "3"}
    assert learnt["draft_ms"]["ngram"] > 0
    assert 0 <= learnt["survival"]["ngram"][0] <= 1
    assert client.metric("mtplx:spec_decode_verify_seconds", rows="3") > 0
    assert client.metric("mtplx:spec_decode_draft_token_seconds", drafter="ngram") > 0
    assert 0 <= client.metric("mtplx:spec_decode_survival", drafter="ngram", position="0") <= 1
    assert client.metric("mtplx:spec_decode_planned_depth_bucket", le="2.0") > 0


def test_usage_tells_how_much_of_a_prediction_came_true(client: Client) -> None:
    fields = {"prompt": "abc", "max_tokens": 20, "temperature": 0}
    said = client.complete(**fields).json()["choices"][0]["text"]
    for content, accepted, rejected in ((said, 20, 0), (said[:9], 9, 0), (said[:9] + "zzz", 9, 3), ("xyz", 0, 3)):
        prediction = {"type": "content", "content": content}
        details = client.complete(prediction=prediction, **fields).json()["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] == accepted
        assert details["rejected_prediction_tokens"] == rejected
