"""The default model behind a real `mtplx serve`, for clients that live in an environment of their own.

Knows no client. That environment has neither MLX nor the server in it: `bin/mtplx` runs with the server's own.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
MODEL = "SmolLM2-135M-Instruct"
API_KEY = "unused"
DEADLINE_S = 120.0  # for what takes seconds, on a machine that may be busy

_hub_folder = tempfile.TemporaryDirectory()  # gone when Python ends

# Before any client is imported: they must ask no hub, report to nobody and keep nothing in the user's folders.
os.environ.update(
    DO_NOT_TRACK="1",
    HF_DATASETS_OFFLINE="1",
    HF_HOME=_hub_folder.name,
    HF_HUB_OFFLINE="1",
    LANGSMITH_TRACING="false",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    OPENAI_AGENTS_DISABLE_TRACING="1",
    OPENAI_API_KEY=API_KEY,
)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has loaded its model."""
    log_path = tmp_path_factory.mktemp("server") / "log"
    command = [ROOT / "bin" / "mtplx", "serve", "--port", "0"]
    with log_path.open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield _wait_until_loaded(process, log_path)
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def base_url(server_url: str) -> str:
    """What a user sets in a client written for OpenAI."""
    return f"{server_url}/v1"


def _wait_until_loaded(process: subprocess.Popen[bytes], log_path: Path) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        _, listens, rest = log_path.read_text().partition("listening on ")
        url = rest.partition("\n")[0]
        if listens and rest != url and httpx.get(f"{url}/health").json()["status"] == "ok":
            return url
        time.sleep(0.1)
    raise AssertionError(log_path.read_text())
