"""The Vercel AI SDK works by its base URL, under node; `ai_sdk.mjs` beside this file asks it everything once."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import DEADLINE_S, MODEL

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def told(base_url: str) -> dict[str, Any]:
    """What the script tells."""
    if shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    if not (HERE / "node_modules").exists():
        pytest.skip("there was no npm to install the Vercel AI SDK with")
    command = ["node", "ai_sdk.mjs", base_url, MODEL]
    ran = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


def test_generate_text_replies(told: dict[str, Any]) -> None:
    assert told["whole"] == "The capital of France is Paris."
    assert told["finishReason"] == "stop"


def test_stream_text_streams_the_reply(told: dict[str, Any]) -> None:
    assert "".join(told["pieces"]) == told["whole"]
    assert len(told["pieces"]) > 1
    assert told["streamedUsage"]["outputTokens"] == told["usage"]["outputTokens"] > 0


def test_generate_object_gives_an_object_of_the_schema(told: dict[str, Any]) -> None:
    assert told["object"]["city"] in ("Berlin", "Paris", "Rome")
    assert isinstance(told["object"]["isCertain"], bool)


def test_a_tool_is_called_and_run(told: dict[str, Any]) -> None:
    for results in (told["toolResults"], told["streamedToolResults"]):
        assert results
        assert all(result.startswith("It is sunny in ") for result in results)
