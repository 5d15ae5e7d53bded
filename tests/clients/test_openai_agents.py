"""An agent of openai-agents runs to its end over the chat endpoint, tool and all."""

from collections.abc import AsyncIterator
from typing import Literal

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
from agents.items import ToolCallOutputItem

from tests.clients.conftest import API_KEY, MODEL

QUESTION = "How is the weather in Paris?"


@function_tool
def weather(city: Literal["Berlin", "Paris", "Rome"]) -> str:
    """Tell the weather in a city."""
    return f"It is sunny in {city}."


@pytest.fixture
async def agent(base_url: str) -> AsyncIterator[Agent]:
    async with openai.AsyncOpenAI(base_url=base_url, api_key=API_KEY, max_retries=0) as client:
        yield Agent(
            name="Weather",
            instructions="Answer from what the tools tell.",
            model=OpenAIChatCompletionsModel(MODEL, client),
            # The first turn must call a tool; the next one is free to answer, for agents ask for that once only.
            model_settings=ModelSettings(tool_choice="required", temperature=0, max_tokens=60),
            tools=[weather],
        )


def outputs(items: list[object]) -> list[object]:
    return [item.output for item in items if isinstance(item, ToolCallOutputItem)]


async def test_a_run_calls_its_tool_and_answers(agent: Agent) -> None:
    result = await Runner.run(agent, QUESTION, max_turns=4)
    assert all(str(output).startswith("It is sunny in ") for output in outputs(result.new_items))
    assert outputs(result.new_items)
    assert result.final_output


async def test_a_streamed_run_calls_its_tool_and_answers(agent: Agent) -> None:
    result = Runner.run_streamed(agent, QUESTION, max_turns=4)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert names[:2] == ["tool_called", "tool_output"]
    assert result.final_output
