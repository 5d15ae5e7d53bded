"""langchain-openai's ChatOpenAI works by its base URL."""

from typing import Literal

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.clients.conftest import API_KEY, MODEL

QUESTION = "What is the capital of France?"


class Answer(BaseModel):
    """The answer to a question about a capital."""

    city: Literal["Berlin", "Paris", "Rome"]
    is_certain: bool


@tool
def weather(city: Literal["Berlin", "Paris", "Rome"]) -> str:
    """Tell the weather in a city."""
    return f"It is sunny in {city}."


@pytest.fixture
def chat(base_url: str) -> ChatOpenAI:
    return ChatOpenAI(base_url=base_url, api_key=API_KEY, model=MODEL, temperature=0, max_tokens=60, max_retries=0)


def test_invoke_replies(chat: ChatOpenAI) -> None:
    reply = chat.invoke(QUESTION)
    assert reply.content == "The capital of France is Paris."
    assert reply.response_metadata["finish_reason"] == "stop"
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["output_tokens"] > 0


def test_a_stream_is_the_reply(chat: ChatOpenAI) -> None:
    chunks = list(chat.stream(QUESTION, stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == chat.invoke(QUESTION).content
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 0


async def test_the_asynchronous_methods_work(chat: ChatOpenAI) -> None:
    text = "".join([str(chunk.content) async for chunk in chat.astream(QUESTION)])
    assert text == (await chat.ainvoke(QUESTION)).content


def test_log_probabilities_come_with_the_reply(chat: ChatOpenAI) -> None:
    tokens = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens).startswith("The capital of France is Paris.")
    assert all(token["top_logprobs"][0]["logprob"] == token["logprob"] <= 0 for token in tokens)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_is_of_its_schema(chat: ChatOpenAI, method: str) -> None:
    answer = chat.with_structured_output(Answer, method=method).invoke(QUESTION)
    assert isinstance(answer, Answer)


def test_json_mode_gives_an_object(chat: ChatOpenAI) -> None:
    raw = chat.with_structured_output(None, method="json_mode").invoke('Reply in JSON: {"city": "Paris"}')
    assert isinstance(raw, dict)


def test_a_bound_tool_is_called_and_its_result_given_back(chat: ChatOpenAI) -> None:
    question = HumanMessage("How is the weather in Paris?")
    request = chat.bind_tools([weather], tool_choice="any", strict=True).invoke([question])
    [call] = request.tool_calls
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert chat.bind_tools([weather], tool_choice="none").invoke([question, request, result]).content


def test_the_arguments_of_a_tool_are_streamed(chat: ChatOpenAI) -> None:
    bound = chat.bind_tools([weather], tool_choice="weather", strict=True)
    request, *rest = bound.stream("How is the weather in Paris?")
    for chunk in rest:
        request += chunk
    [call] = request.tool_calls
    assert call["name"] == "weather"
    assert weather.invoke(call["args"]).startswith("It is sunny in ")
