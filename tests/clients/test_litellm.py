"""litellm works by its `api_base`, as provider `openai` for chats and `text-completion-openai` for completions."""

from typing import Any

import litellm
import pytest

from tests.clients.conftest import API_KEY, MODEL

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def fields(base_url: str) -> dict[str, Any]:
    return {"api_base": base_url, "api_key": API_KEY, "temperature": 0, "max_tokens": 16, "max_retries": 0}


def test_a_chat_streams_what_it_replies(fields: dict[str, Any]) -> None:
    chat = {"model": f"openai/{MODEL}", "messages": MESSAGES, **fields}
    whole = litellm.completion(**chat)
    chunks = litellm.completion(**chat, stream=True, stream_options={"include_usage": True})
    rebuilt = litellm.stream_chunk_builder(list(chunks), messages=MESSAGES)
    assert rebuilt.choices[0].message.content == whole.choices[0].message.content == "The capital of France is Paris."
    assert rebuilt.usage.completion_tokens == whole.usage.completion_tokens


def test_a_completion_replies(fields: dict[str, Any]) -> None:
    reply = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", prompt="The capital of France is", **fields
    )
    assert "Paris" in reply.choices[0].text


def test_a_chat_tells_log_probabilities(fields: dict[str, Any]) -> None:
    reply = litellm.completion(model=f"openai/{MODEL}", messages=MESSAGES, logprobs=True, top_logprobs=3, **fields)
    tokens = reply.choices[0].logprobs.content
    assert "".join(token.token for token in tokens).startswith("The capital of France is Paris.")
    assert all(len(token.top_logprobs) == 3 for token in tokens)


def test_several_choices_come_back(fields: dict[str, Any]) -> None:
    sampled = fields | {"temperature": 1, "seed": 1}
    reply = litellm.completion(model=f"openai/{MODEL}", messages=MESSAGES, n=3, **sampled)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]


async def test_the_asynchronous_functions_work(fields: dict[str, Any]) -> None:
    reply = await litellm.acompletion(model=f"openai/{MODEL}", messages=MESSAGES, **fields)
    assert reply.choices[0].message.content == "The capital of France is Paris."


def test_a_bad_request_raises_litellms_own_exception(fields: dict[str, Any]) -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(model=f"openai/{MODEL}", messages=MESSAGES, **fields | {"temperature": -1})
