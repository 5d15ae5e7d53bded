"""instructor patches OpenAI's client, and its modes that a server takes part in work."""

from typing import Literal

import instructor
import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.clients.conftest import API_KEY, MODEL

MESSAGES = [{"role": "user", "content": "Ada is 36 years old and lives in London. Who is it?"}]


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")  # else the schema allows fields that nobody asked for

    name: Literal["Ada", "Grace"]
    age: int = Field(ge=0, le=99)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA])
def test_a_reply_is_of_the_model_asked_for(base_url: str, mode: instructor.Mode) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=base_url, api_key=API_KEY), mode=mode)
    person = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_model=Person, temperature=0, max_tokens=60, max_retries=0
    )
    assert isinstance(person, Person)


def test_a_partial_reply_grows_into_the_whole(base_url: str) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=base_url, api_key=API_KEY), mode=instructor.Mode.JSON_SCHEMA)
    partials = client.chat.completions.create_partial(
        model=MODEL, messages=MESSAGES, response_model=Person, temperature=0, max_tokens=60
    )
    *_, last = partials
    assert Person.model_validate(last.model_dump())
