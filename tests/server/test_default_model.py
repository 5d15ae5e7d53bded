"""The default model over HTTP, as a newcomer meets it."""

from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from mtplx.server.loading import load_engine
from tests.kernels.availability import needs_native
from tests.server.conftest import Client, events, running_server

pytestmark = pytest.mark.slow

MODEL = "SmolLM2-135M-Instruct"


class Capital(BaseModel):
    """The capital of a country."""

    country: Literal["France", "Italy"]
    city: Literal["Berlin", "Paris", "Rome"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with running_server(load_engine) as client:
        client.timeout = 120
        yield client


def test_it_is_served_with_all_its_drafters(client: Client) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok"
    assert health["model"] == {
        "id": MODEL,
        "architecture": "llama",
        "quantization": "4-bit layers, 8-bit embedding and head",
        "max_model_len": 8192,
        "runs_by": "rows",
        "drafters": ["grammar", "ngram", "head", "self"],
    }


@needs_native
def test_health_tells_what_native_kernels_do(client: Client) -> None:
    kernels = client.get("/health").json()["kernels"]
    assert kernels["active"]
    assert kernels["layers"] == {
        "native": {"QuantizedEmbedding": 1, "QuantizedLinear": 210, "RMSNorm": 61, "RoPE": 30, "MLP": 30},
        "stock": {},
        "failed": [],
    }
    assert kernels["decoder_layers"] == "in one native call"
    assert kernels["kv_cache_dtype"] == "float16"


@pytest.mark.parametrize("drafter", ["ngram", "head"])
def test_a_stream_is_the_same_at_every_depth(client: Client, drafter: str) -> None:
    texts = set()
    for depth in (0, 3, 8):
        response = client.complete(
            model=MODEL,
            prompt="1, 2, 3, 4, 1, 2, 3, 4, 1, 2,",
            max_tokens=8,
            temperature=0,
            speculative_depth=depth,
            drafter=drafter,
            stream=True,
        )
        chunks = events(response)
        texts.add("".join(chunk["choices"][0]["text"] for chunk in chunks))
        told = chunks[-1]["metrics"]["speculative_decoding"]
        assert (told["num_draft_tokens"] > 0) == (depth > 0)
    assert len(texts) == 1


def test_a_chat_ends_its_turn(client: Client) -> None:
    body = client.chat("What is the capital of France?", model=MODEL, temperature=0, max_tokens=20).json()
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["message"]["content"] == "The capital of France is Paris."


def test_its_answers_are_parsed_by_openais_client(client: Client) -> None:
    fields = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    calling = {"tools": [openai.pydantic_function_tool(Capital)], "tool_choice": "required"}
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0) as api:
        answer = api.chat.completions.parse(**fields, response_format=Capital, temperature=0)
        call = api.chat.completions.parse(**fields, **calling, parallel_tool_calls=False, temperature=0)
    expected = Capital(country="France", city="Paris")
    assert answer.choices[0].message.parsed == expected
    assert call.choices[0].message.tool_calls[0].function.parsed_arguments == expected
