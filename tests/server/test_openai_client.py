"""OpenAI's own Python client works unmodified. What it raises is in `test_openai_errors`."""

from collections.abc import Iterator

import openai
import pytest

from tests.server.conftest import Client
from tests.server.engines import MODEL

HELLO = [{"role": "user", "content": "Hello"}]


def connect(client: Client) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0)


@pytest.fixture
def api(client: Client) -> Iterator[openai.OpenAI]:
    with connect(client) as api:
        yield api


@pytest.fixture
def async_api(client: Client) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0)


def test_completions_stream_what_they_reply(api: openai.OpenAI) -> None:
    whole = api.completions.create(model=MODEL, prompt="abc", max_tokens=30, seed=1)
    stream = api.completions.create(model=MODEL, prompt="abc", max_tokens=30, seed=1, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 30


def test_chats_stream_what_they_reply(api: openai.OpenAI) -> None:
    same_rounds = {"drafter": "ngram", "speculative_depth": 3}
    fields = {"model": MODEL, "messages": HELLO, "max_tokens": 30, "seed": 1, "extra_body": same_rounds}
    whole = api.chat.completions.create(**fields)
    chunks = list(api.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].model_extra == {"metrics": whole.metrics}


def test_a_reply_can_be_given_back_as_history(api: openai.OpenAI) -> None:
    first = api.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3)
    history = [*HELLO, first.choices[0].message, {"role": "user", "content": "Go on"}]
    second = api.chat.completions.create(model=MODEL, messages=history, max_tokens=3)
    assert second.choices[0].message.content


def test_the_streaming_helper_of_the_client_works(api: openai.OpenAI) -> None:
    whole = api.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=30, temperature=0)
    text = whole.choices[0].message.content or ""
    fields = {"model": MODEL, "messages": HELLO, "temperature": 0, "stop": text[9:12]}
    with api.chat.completions.stream(**fields) as stream:
        completion = stream.until_done().get_final_completion()
    assert completion.choices[0].message.content == text[: text.index(text[9:12])]


def test_the_raw_response_has_headers_and_the_same_reply(api: openai.OpenAI) -> None:
    fields = {"model": MODEL, "messages": HELLO, "max_tokens": 20, "seed": 1}
    raw = api.chat.completions.with_raw_response.create(**fields)
    whole = api.chat.completions.create(**fields)
    assert raw.parse().choices == whole.choices
    assert raw.headers["x-request-id"] == raw.request_id == raw.parse()._request_id != whole._request_id


def test_the_raw_response_of_a_stream_is_read_line_by_line(api: openai.OpenAI) -> None:
    streaming = api.completions.with_streaming_response
    with streaming.create(model=MODEL, prompt="abc", max_tokens=3, stream=True) as raw:
        assert raw.headers["content-type"].startswith("text/event-stream")
        assert [line for line in raw.iter_lines() if line][-1] == "data: [DONE]"


def test_own_fields_go_in_the_extra_body(api: openai.OpenAI) -> None:
    extra = {"speculative_depth": 2, "drafter": "ngram", "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}
    reply = api.completions.create(model=MODEL, prompt="abc", extra_body=extra)
    assert reply.metrics["speculative_decoding"]["num_spec_tokens"] == 2


def test_models_are_listed_and_retrieved(api: openai.OpenAI) -> None:
    [model] = api.models.list()
    assert api.models.retrieve(model.id) == model


async def test_the_asynchronous_client_works(async_api: openai.AsyncOpenAI) -> None:
    async with async_api as api:
        whole = await api.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=20, seed=2)
        stream = await api.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=20, seed=2, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == whole.choices[0].message.content
        with pytest.raises(openai.NotFoundError):
            await api.completions.create(model="other", prompt="abc")
