"""Log probabilities and echoed prompts, as both endpoints word them."""

import math
from typing import Any

import numpy as np
import pytest

from mtplx.engine.types import TokenScore
from mtplx.server.logprobs import TextLogprobsWriter
from mtplx.server.token_texts import TokenTexts
from tests.fakes import EOS, ByteTokenizer
from tests.server.conftest import Client, error_of, events
from tests.server.engines import LetterTarget


def log_probabilities(context: bytes) -> dict[str, float]:
    """The letters' log probabilities after a context, by an independent way: straight from the model's table."""
    logits = LetterTarget().logits(list(context)).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    return {chr(token): float(logprobs[token]) for token in range(ord("a"), ord("i"))}


def text_logprobs(client: Client, **fields: Any) -> tuple[str, dict[str, Any]]:
    [choice] = client.complete(**{"prompt": "abc", "max_tokens": 12, **fields}).json()["choices"]
    return choice["text"], choice["logprobs"]


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 0.3, "seed": 4, "logit_bias": {"97": 3}}])
def test_values_are_the_models_own_whatever_sampling_does_to_them(client: Client, fields: dict[str, Any]) -> None:
    text, logprobs = text_logprobs(client, logprobs=2, **fields)
    assert logprobs["tokens"] == list(text)
    assert logprobs["text_offset"] == list(range(12))
    for index, letter in enumerate(text):
        expected = log_probabilities(("abc" + text[:index]).encode())
        assert math.isclose(logprobs["token_logprobs"][index], expected[letter], abs_tol=1e-4)
        likeliest = sorted(expected, key=lambda each: -expected[each])[:2]
        assert set(logprobs["top_logprobs"][index]) == {*likeliest, letter}


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_they_do_not_depend_on_what_is_drafted(client: Client, depth: int) -> None:
    plain = text_logprobs(client, logprobs=3, temperature=0, drafter="none", max_tokens=60)
    assert text_logprobs(
        client, logprobs=3, temperature=0, drafter="ngram", speculative_depth=depth, max_tokens=60
    ) == (plain)


def test_an_echo_comes_first_and_has_probabilities_too_but_for_its_first_token(client: Client) -> None:
    text, logprobs = text_logprobs(client, echo=True, logprobs=1, temperature=0)
    assert text.startswith("abc")
    assert logprobs["tokens"] == list(text)
    assert logprobs["text_offset"] == list(range(15))
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    for index in range(1, 15):
        expected = log_probabilities(text[:index].encode())
        assert math.isclose(logprobs["token_logprobs"][index], expected[text[index]], abs_tol=1e-4)


def test_a_prompt_can_be_scored_alone(client: Client) -> None:
    body = client.complete(prompt=["abcab", [104, 97]], echo=True, logprobs=0, max_tokens=0).json()
    assert [choice["text"] for choice in body["choices"]] == ["abcab", "ha"]
    assert body["usage"]["completion_tokens"] == 0
    assert {choice["finish_reason"] for choice in body["choices"]} == {"length"}
    [_, score] = body["choices"][1]["logprobs"]["token_logprobs"]
    assert math.isclose(score, log_probabilities(b"h")["a"], abs_tol=1e-4)


def test_an_echo_without_log_probabilities_is_only_text(client: Client) -> None:
    plain = client.complete(prompt="abc", temperature=0, max_tokens=5).json()["choices"][0]["text"]
    echoed = client.complete(prompt="abc", temperature=0, max_tokens=5, echo=True).json()["choices"][0]
    assert (echoed["text"], echoed["logprobs"]) == ("abc" + plain, None)


def test_no_prompt_is_echoed_that_is_none(client: Client) -> None:
    assert error_of(client.complete(prompt=[97, 10**9], echo=True), 400)["param"] == "prompt"


@pytest.mark.parametrize("fields", [{}, {"echo": True}, {"echo": True, "max_tokens": 0}, {"n": 2, "seed": 1}])
def test_streamed_texts_have_the_same_ones(client: Client, fields: dict[str, Any]) -> None:
    fields = {"prompt": "abc", "temperature": 0.5, "seed": 9, "max_tokens": 15, "logprobs": 2, **fields}
    for whole in client.complete(**fields).json()["choices"]:
        chunks = [
            chunk["choices"][0]
            for chunk in events(client.complete(stream=True, **fields))
            if chunk["choices"][0]["index"] == whole["index"]
        ]
        assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
        told = [chunk["logprobs"] for chunk in chunks if chunk["logprobs"] is not None]
        for name, values in whole["logprobs"].items():
            assert [value for each in told for value in each[name]] == values


def test_a_message_has_bytes_and_likeliest_tokens_in_order(client: Client) -> None:
    [choice] = client.chat("Hi", logprobs=True, top_logprobs=3, max_tokens=6, temperature=0).json()["choices"]
    content = choice["logprobs"]["content"]
    assert "".join(each["token"] for each in content) == choice["message"]["content"]
    for each in content:
        assert bytes(each["bytes"]).decode() == each["token"]
        assert [top["logprob"] for top in each["top_logprobs"]] == sorted(
            (top["logprob"] for top in each["top_logprobs"]), reverse=True
        )
        assert each["top_logprobs"][0]["token"] == each["token"]  # it is the greedy one
        assert len(each["top_logprobs"]) == 3


def test_a_streamed_message_has_the_same_ones(client: Client) -> None:
    fields = {"logprobs": True, "top_logprobs": 2, "max_tokens": 20, "temperature": 0}
    [whole] = client.chat("Hi", **fields).json()["choices"]
    chunks = [chunk["choices"][0] for chunk in events(client.chat("Hi", stream=True, **fields))]
    told = [chunk["logprobs"]["content"] for chunk in chunks if chunk["logprobs"] is not None]
    assert [each for content in told for each in content] == whole["logprobs"]["content"]
    assert "".join(chunk["delta"].get("content") or "" for chunk in chunks) == whole["message"]["content"]


def test_the_best_of_several_tells_log_probabilities_only_if_asked_to(client: Client) -> None:
    fields = {"prompt": "abc", "best_of": 3, "max_tokens": 5}
    assert client.complete(**fields).json()["choices"][0]["logprobs"] is None
    assert len(client.complete(logprobs=1, **fields).json()["choices"][0]["logprobs"]["tokens"]) == 5


def test_the_token_that_ends_a_text_is_told(client: Client) -> None:
    """Whoever scores a text by its echo, such as lm-eval, leaves out the last token, whatever that is."""
    text, logprobs = text_logprobs(client, logprobs=0, seed=1, temperature=1, stop_token_ids=[ord("e")], max_tokens=60)
    assert logprobs["tokens"] == [*text, "e"]
    assert logprobs["text_offset"] == list(range(len(text) + 1))


def test_the_token_that_ends_a_message_is_no_part_of_it(client: Client) -> None:
    fields = {"logprobs": True, "seed": 1, "stop_token_ids": [ord("e")], "max_tokens": 60}
    [choice] = client.chat("Hi", **fields).json()["choices"]
    assert "".join(each["token"] for each in choice["logprobs"]["content"]) == choice["message"]["content"]


def test_the_token_that_ends_with_a_stop_string_is_told(client: Client) -> None:
    text, logprobs = text_logprobs(client, logprobs=0, seed=1, temperature=1, stop=["e"], max_tokens=60)
    assert logprobs["tokens"] == [*text, "e"]


def test_places_do_not_depend_on_text_that_is_held_back(client: Client) -> None:
    fields = {"prompt": "abc", "temperature": 0.8, "seed": 1, "max_tokens": 30, "logprobs": 0}
    held = [f"{letter}{other}Z" for letter, other in ("ab", "cd", "ef", "gh")]
    text, logprobs = text_logprobs(client, stop=held, **fields)
    assert logprobs["text_offset"] == list(range(len(text)))


def test_parts_of_a_character_are_spelled_as_bytes_and_begin_where_it_does(client: Client) -> None:
    text, logprobs = text_logprobs(client, prompt="aé€b", echo=True, logprobs=0, max_tokens=0)
    assert text == "aé€b"
    assert logprobs["tokens"][1:3] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["text_offset"] == [0, 1, 1, 2, 2, 2, 3]


def test_special_tokens_take_room_where_the_echo_has_them() -> None:
    scores = [TokenScore(EOS, -1.0), TokenScore(ord("b"), -1.0)]
    for echo, places in (("a<end>b", [0, 1, 6]), ("ab", [0, 1, 1])):
        writer = TextLogprobsWriter(TokenTexts(ByteTokenizer()), ())
        assert writer.prompt([ord("a"), EOS, ord("b")], echo, scores).text_offset == places
        assert writer.output(scores[1:]).text_offset == [len(echo)]


def test_a_message_has_begun_before_its_log_probabilities_come(client: Client) -> None:
    fields = {"logprobs": True, "max_tokens": 20, "temperature": 0, "stop": ["aZ", "bZ", "cZ", "dZ"]}
    first = events(client.chat("Hi", stream=True, **fields))[0]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
