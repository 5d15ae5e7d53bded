"""Several choices in one reply: for one prompt, for several, and the best of many."""

from collections import defaultdict

import pytest

from tests.server.conftest import Client, StartServer, error_of, events
from tests.server.engines import POISON, letter_engine


def test_choices_differ_and_are_numbered(client: Client) -> None:
    choices = client.complete(prompt="abc", n=3, seed=1, max_tokens=20).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["text"] for choice in choices}) == 3


def test_the_first_choice_of_several_is_the_only_one_of_one(client: Client) -> None:
    fields = {"prompt": "abc", "seed": 1, "max_tokens": 20, "acceptance": "coupled"}
    [alone] = client.complete(**fields).json()["choices"]
    assert client.complete(n=3, **fields).json()["choices"][0] == alone


def test_a_list_of_prompts_gets_choices_prompt_after_prompt(client: Client) -> None:
    fields = {"temperature": 0, "max_tokens": 12}
    alone = [client.complete(prompt=prompt, **fields).json()["choices"][0]["text"] for prompt in ("abc", "hg")]
    body = client.complete(prompt=["abc", list(b"hg")], n=2, **fields).json()
    assert [choice["text"] for choice in body["choices"]] == [alone[0], alone[0], alone[1], alone[1]]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]


def test_a_prompt_counts_once_and_every_text_counts(client: Client) -> None:
    usage = client.complete(prompt=["abc", "hg"], n=2, max_tokens=7).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 28, 33)


def test_metrics_are_those_of_all_choices_together(client: Client) -> None:
    fields = {"prompt": "abc", "max_tokens": 40, "temperature": 0, "speculative_depth": 3, "drafter": "ngram"}
    [one, two] = [
        client.complete(n=n, **fields).json()["metrics"]["speculative_decoding"]["num_draft_tokens"] for n in (1, 2)
    ]
    assert two == 2 * one > 0


@pytest.mark.parametrize("include_usage", [False, True])
def test_streamed_choices_come_interleaved_and_say_what_whole_ones_say(client: Client, include_usage: bool) -> None:
    fields = {"prompt": ["abc", "hg"], "n": 2, "seed": 3, "max_tokens": 30}
    whole = client.complete(**fields).json()
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    chunks = events(client.complete(stream=True, **options, **fields))
    texts: defaultdict[int, str] = defaultdict(str)
    order = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
            order.append(choice["index"])
    assert [texts[index] for index in range(4)] == [choice["text"] for choice in whole["choices"]]
    assert order != sorted(order)
    assert [("metrics" in chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    if include_usage:
        assert chunks[-1]["usage"] == whole["usage"]


def test_chat_choices_each_begin_with_their_role(client: Client) -> None:
    chunks = events(client.chat("Hi", n=2, stream=True, max_tokens=8))
    begun = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"].get("role")) for chunk in chunks]
    for index in (0, 1):
        assert next(role for number, role in begun if number == index) == "assistant"
    assert len(client.chat("Hi", n=2, max_tokens=8).json()["choices"]) == 2


def test_the_best_of_several_is_the_likeliest(client: Client) -> None:
    fields = {"prompt": "abc", "seed": 5, "max_tokens": 10, "acceptance": "coupled"}
    all_choices = client.complete(n=8, logprobs=0, **fields).json()["choices"]
    means = [sum(each["logprobs"]["token_logprobs"]) / 10 for each in all_choices]
    order = sorted(range(8), key=lambda index: -means[index])
    best = client.complete(n=2, best_of=8, **fields).json()
    assert [choice["text"] for choice in best["choices"]] == [all_choices[index]["text"] for index in order[:2]]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 80


def test_more_texts_than_the_server_ever_takes_are_refused_not_queued(start_server: StartServer) -> None:
    client = start_server(letter_engine(), max_running=2, max_waiting=1)
    assert "takes 3" in error_of(client.complete(prompt="abc", n=4), 400)["message"]
    assert error_of(client.complete(prompt=["a"] * 4), 400)["param"] == "prompt"
    assert error_of(client.chat("Hi", n=4), 400)["param"] == "n"
    assert client.complete(prompt="abc", n=3).status_code == 200


def test_a_choice_that_fails_fails_the_reply(client: Client) -> None:
    assert error_of(client.complete(prompt=["abc", POISON]), 500)["code"] == "non_finite_logits"
    chunks = client.complete(prompt=["abc", "abc" + POISON], stream=True, max_tokens=500).text
    assert "non_finite_logits" in chunks
    assert "[DONE]" not in chunks
