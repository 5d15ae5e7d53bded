"""llama-index's OpenAILike works by its base URL, on both endpoints."""

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

from tests.clients.conftest import API_KEY, MODEL

MESSAGES = [ChatMessage(role="user", content="What is the capital of France?")]
PROMPT = "The capital of France is"


def connect(base_url: str, *, is_chat_model: bool) -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=base_url,
        api_key=API_KEY,
        is_chat_model=is_chat_model,
        context_window=8192,
        temperature=0,
        max_tokens=16,
        max_retries=0,
    )


@pytest.fixture
def completer(base_url: str) -> OpenAILike:
    return connect(base_url, is_chat_model=False)


@pytest.fixture
def chatter(base_url: str) -> OpenAILike:
    return connect(base_url, is_chat_model=True)


def test_a_completion_streams_what_it_replies(completer: OpenAILike) -> None:
    *_, last = completer.stream_complete(PROMPT)
    assert last.text == completer.complete(PROMPT).text
    assert "Paris" in last.text


def test_a_chat_streams_what_it_replies(chatter: OpenAILike) -> None:
    *_, last = chatter.stream_chat(MESSAGES)
    assert last.message.content == chatter.chat(MESSAGES).message.content == "The capital of France is Paris."


async def test_the_asynchronous_methods_work(chatter: OpenAILike) -> None:
    assert (await chatter.achat(MESSAGES)).message.content == "The capital of France is Paris."


def test_a_chat_model_completes_by_chatting(chatter: OpenAILike) -> None:
    assert chatter.complete("What is the capital of France?").text == "The capital of France is Paris."
