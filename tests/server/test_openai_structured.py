"""OpenAI's own Python client gets objects of the caller's classes, parsed from constrained text and tool calls.

The letters' model would write none of that by itself: each test shows that what comes is held to its schema.
"""

import json
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from pydantic import BaseModel, Field

from tests.server.conftest import Client
from tests.server.engines import MODEL

HELLO = [{"role": "user", "content": "Hello"}]


class Trip(BaseModel):
    """A trip to a city."""

    city: Literal["Berlin", "Paris"]
    days: int = Field(ge=1, le=9)
    returns: bool


@pytest.fixture
def api(client: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0) as api:
        yield api


def test_parse_gives_an_object_of_the_class(api: openai.OpenAI) -> None:
    completion = api.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Trip)
    assert isinstance(completion.choices[0].message.parsed, Trip)
    assert completion.choices[0].finish_reason == "stop"


async def test_the_asynchronous_client_parses_too(client: Client) -> None:
    async with openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0) as api:
        completion = await api.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Trip)
    assert isinstance(completion.choices[0].message.parsed, Trip)


def test_a_text_cut_by_its_limit_raises(api: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        api.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Trip, max_tokens=5)


def test_the_streaming_helper_parses_as_it_goes(api: openai.OpenAI) -> None:
    whole = api.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Trip, seed=1)
    with api.chat.completions.stream(model=MODEL, messages=HELLO, response_format=Trip, seed=1) as stream:
        snapshots = [event.parsed for event in stream if event.type == "content.delta"]
        assert snapshots[-1] == whole.choices[0].message.parsed.model_dump()
        assert stream.get_final_completion().choices[0].message.parsed == whole.choices[0].message.parsed


def test_parse_gives_the_arguments_of_a_tool(api: openai.OpenAI) -> None:
    completion = api.chat.completions.parse(
        model=MODEL, messages=HELLO, tools=[openai.pydantic_function_tool(Trip)], tool_choice="required"
    )
    [call] = completion.choices[0].message.tool_calls
    assert completion.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "Trip"
    assert isinstance(call.function.parsed_arguments, Trip)


def test_the_streaming_helper_puts_arguments_together(api: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Trip)]
    named = {"type": "function", "function": {"name": "Trip"}}
    with api.chat.completions.stream(model=MODEL, messages=HELLO, tools=tools, tool_choice=named) as stream:
        deltas = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert "".join(delta.arguments_delta for delta in deltas) == call.function.arguments
    assert Trip.model_validate(json.loads(call.function.arguments)) == call.function.parsed_arguments
