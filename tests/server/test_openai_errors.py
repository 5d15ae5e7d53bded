"""OpenAI's client raises its own exceptions, each for what it is meant for, and tries again only what may then succeed.

Three of them have no cause here. No request is forbidden to some keys (PermissionDeniedError, 403), none conflicts with
another (ConflictError, 409), and what a body says wrongly is a 400, as OpenAI has it (UnprocessableEntityError, 422).
"""

import socket
from collections.abc import Iterator
from http import HTTPStatus

import openai
import pytest
from openai.types import Completion, Model

from tests.server.conftest import Client, StartServer
from tests.server.engines import CONTEXT_LENGTH, MODEL, letter_engine, unloadable_engine

HELLO = [{"role": "user", "content": "Hello"}]


def connect(client: Client, *, max_retries: int = 0, **options: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=max_retries, **options)


@pytest.fixture
def api(client: Client) -> Iterator[openai.OpenAI]:
    with connect(client) as api:
        yield api


@pytest.fixture
def full_server(start_server: StartServer) -> Iterator[Client]:
    """A server whose only place is taken."""
    client = start_server(letter_engine(pace_s=0.02), max_running=1, max_waiting=0)
    with connect(client) as api, api.completions.create(model=MODEL, prompt="a", max_tokens=4000, stream=True):
        yield client


def num_retries(error: openai.APIStatusError) -> int:
    """How often the client has tried again before it raised."""
    return int(error.request.headers["x-stainless-retry-count"])


def test_a_bad_request_raises_bad_request_error(api: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        api.completions.create(model=MODEL, prompt="a" * CONTEXT_LENGTH)
    error = caught.value
    assert (error.code, error.param, error.type) == ("context_length_exceeded", "prompt", "invalid_request_error")


def test_an_unknown_model_raises_not_found_error(api: openai.OpenAI) -> None:
    for ask in (lambda: api.completions.create(model="other", prompt="abc"), lambda: api.models.retrieve("other")):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert caught.value.code == "model_not_found"


def test_a_wrong_key_raises_authentication_error(start_server: StartServer) -> None:
    client = start_server(api_key=["right"])
    with connect(client) as api:
        with pytest.raises(openai.AuthenticationError) as caught:
            api.models.list()
        assert caught.value.code == "invalid_api_key"
        assert [model.id for model in api.with_options(api_key="right").models.list()] == [MODEL]


def test_a_full_server_raises_rate_limit_error(full_server: Client) -> None:
    with connect(full_server) as api, pytest.raises(openai.RateLimitError) as caught:
        api.completions.create(model=MODEL, prompt="abc")
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "rate_limit_error")


def test_a_failing_engine_raises_internal_server_error(api: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        api.completions.create(model=MODEL, prompt="abc!")
    assert (caught.value.status_code, caught.value.code) == (500, "non_finite_logits")


def test_an_unready_server_raises_internal_server_error(start_server: StartServer) -> None:
    with connect(start_server(unloadable_engine)) as api, pytest.raises(openai.InternalServerError) as caught:
        api.completions.create(model=MODEL, prompt="abc")
    assert caught.value.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert caught.value.response.headers["retry-after"] == "5"


def test_a_stream_that_fails_raises_api_error(api: openai.OpenAI) -> None:
    fields = {"model": MODEL, "max_tokens": 9, "logit_bias": {str(ord("!")): 100}, "stream": True}
    for stream in (
        api.completions.create(prompt="abc", **fields),
        api.chat.completions.create(messages=HELLO, **fields),
    ):
        with pytest.raises(openai.APIError, match="not finite") as caught:
            list(stream)
        assert (type(caught.value), caught.value.code) == (openai.APIError, "non_finite_logits")


def test_a_server_that_is_not_there_raises_connection_error() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        api = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0)
        with api, pytest.raises(openai.APIConnectionError) as caught:
            api.models.list()
    assert type(caught.value) is openai.APIConnectionError


def test_a_reply_that_takes_too_long_raises_timeout_error(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.02))
    with connect(client, timeout=0.2) as api, pytest.raises(openai.APITimeoutError):
        api.completions.create(model=MODEL, prompt="abc", max_tokens=4000)


def test_a_strict_client_finds_every_reply_valid_and_only_another_kind_of_it_invalid(client: Client) -> None:
    with connect(client, _strict_response_validation=True) as api:
        fields = {"model": MODEL, "max_tokens": 5, "extra_body": {"drafter": "ngram", "speculative_depth": 2}}
        assert api.models.list().data[0].id == MODEL
        assert api.completions.create(prompt="abc", **fields).choices
        assert api.chat.completions.create(messages=HELLO, **fields).choices
        # The client's own type of a completion's chunk has no room for its finish_reason of null, as OpenAI sends it.
        assert list(api.chat.completions.create(messages=HELLO, stream=True, **fields))
        for path, kind in ((f"/models/{MODEL}", Completion), (f"{client.base_url}/metrics", Model)):
            with pytest.raises(openai.APIResponseValidationError):
                api.get(path, cast_to=kind)


@pytest.mark.parametrize("fields", [{"model": "other"}, {"max_tokens": CONTEXT_LENGTH}, {"n": 0}, {"prompt": 5}])
def test_what_can_never_succeed_is_not_tried_again(client: Client, fields: dict[str, object]) -> None:
    with connect(client, max_retries=2) as api, pytest.raises(openai.APIStatusError) as caught:
        api.post("/completions", body={"model": MODEL, "prompt": "abc", **fields}, cast_to=Completion)
    assert num_retries(caught.value) == 0


def test_nor_is_what_would_take_as_long_once_more(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.02))
    with connect(client, max_retries=2) as api, pytest.raises(openai.InternalServerError) as caught:
        api.completions.create(model=MODEL, prompt="abc", max_tokens=4000, extra_body={"timeout_s": 0.1})
    assert caught.value.status_code == HTTPStatus.GATEWAY_TIMEOUT
    assert num_retries(caught.value) == 0


def test_nor_is_what_exceeds_all_places_that_there_are(full_server: Client) -> None:
    with connect(full_server, max_retries=2) as api, pytest.raises(openai.BadRequestError) as caught:
        api.completions.create(model=MODEL, prompt="abc", n=2)
    assert (caught.value.param, num_retries(caught.value)) == ("n", 0)


def test_what_a_full_server_refuses_is_tried_again_when_it_says(full_server: Client) -> None:
    with connect(full_server, max_retries=1) as api, pytest.raises(openai.RateLimitError) as caught:
        api.completions.create(model=MODEL, prompt="abc")
    assert num_retries(caught.value) == 1
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 120  # beyond, the client would not try again


def test_replies_and_errors_tell_the_id_of_the_request(api: openai.OpenAI) -> None:
    own = {"X-Request-Id": "mine"}
    reply = api.completions.create(model=MODEL, prompt="abc", max_tokens=1, extra_headers=own)
    with pytest.raises(openai.NotFoundError) as caught:
        api.completions.create(model="other", prompt="abc", extra_headers=own)
    assert reply._request_id == caught.value.request_id == "mine"
