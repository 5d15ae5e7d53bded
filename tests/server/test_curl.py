"""Real curl, as a user would type it."""

import json
import shutil
import subprocess

import pytest

from tests.server.conftest import Client
from tests.server.engines import MODEL

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")


def curl(client: Client, path: str, body: dict[str, object]) -> str:
    command = [
        *("curl", "--silent", "--show-error", "--no-buffer", "--max-time", "20", f"{client.base_url}{path}"),
        *("--header", "Content-Type: application/json", "--data", json.dumps(body)),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_streamed_completion_arrives_as_events(client: Client) -> None:
    output = curl(client, "/v1/completions", {"model": MODEL, "prompt": "abc", "temperature": 0, "stream": True})
    data = [block.removeprefix("data: ") for block in output.split("\n\n")]
    assert data[-2:] == ["[DONE]", ""]
    text = "".join(json.loads(chunk)["choices"][0]["text"] for chunk in data[:-2])
    assert text == client.complete(prompt="abc", temperature=0).json()["choices"][0]["text"]


def test_a_chat_arrives_whole(client: Client) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    assert json.loads(curl(client, "/v1/chat/completions", body))["usage"]["completion_tokens"] == 5


def test_a_body_over_the_limit_is_answered_before_it_is_sent(client: Client) -> None:
    # curl waits for a go-ahead with a body of this size, so it sees the answer rather than a broken connection.
    command = [
        *("curl", "--silent", "--max-time", "20", f"{client.base_url}/v1/completions", "--data-binary", "@-"),
        *("--header", "Content-Type: application/json", "--output", "/dev/null", "--write-out", "%{http_code}"),
    ]
    status = subprocess.run(command, input=b" " * (9 * 2**20), capture_output=True, check=True).stdout
    assert status == b"413"
