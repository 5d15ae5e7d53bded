"""What is too long, too many or too deep is refused with a 400 that names the field and the limit."""

import json
from typing import Any

import pytest

from mtplx.server.schemas.completion import CompletionBody
from mtplx.server.schemas.sampling import MAX_BIASES, MAX_STOP_CHARS
from tests.server.conftest import Client, error_of
from tests.server.engines import MODEL

JSON = {"content-type": "application/json"}


def biases(num: int) -> dict[str, int]:
    return {str(token): 0 for token in range(num)}


@pytest.mark.parametrize(
    ("fields", "param", "limit"),
    [
        ({"stop": "s" * (MAX_STOP_CHARS + 1)}, "stop", MAX_STOP_CHARS),
        ({"stop": ["s", "s" * 10**6]}, "stop", MAX_STOP_CHARS),
        ({"stop": ["s"] * 5}, "stop", 4),
        ({"logit_bias": biases(MAX_BIASES + 1)}, "logit_bias", MAX_BIASES),
        ({"n": 129}, "n", 128),
    ],
)
def test_more_than_the_limit_is_refused_with_it(client: Client, fields: dict[str, Any], param: str, limit: int) -> None:
    for response in (client.complete(prompt="a", **fields), client.chat("a", **fields)):
        error = error_of(response, 400)
        assert error["param"] == param
        assert str(limit) in error["message"]
        assert len(error["message"]) < 200


def test_as_much_as_the_limit_is_taken(client: Client) -> None:
    assert client.complete(prompt="a", max_tokens=1, stop=["s" * MAX_STOP_CHARS] * 4).status_code == 200
    assert CompletionBody(model=MODEL, prompt="a", logit_bias=biases(MAX_BIASES))


@pytest.mark.parametrize("opening", ['{"a":', "["])
@pytest.mark.parametrize("field", ["prompt", "messages", "metadata", "response_format", "stop", "unheard_of"])
def test_nesting_without_end_is_refused(client: Client, field: str, opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    for depth in (150, 100_000):
        value = f"{opening * depth}1{closing * depth}"
        content = f'{{"model": {json.dumps(MODEL)}, "{field}": {value}}}'
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize"):
            error_of(client.post(path, content=content, headers=JSON), 400)


def test_of_a_field_that_comes_twice_the_last_one_counts(client: Client) -> None:
    content = f'{{"model": {json.dumps(MODEL)}, "prompt": 5, "max_tokens": 1, "prompt": "abc"}}'
    reply = client.post("/v1/completions", content=content, headers=JSON)
    assert reply.json()["usage"]["prompt_tokens"] == 3
