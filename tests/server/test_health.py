"""/health and /v1/models, when all is well and when it is not."""

import json
import re
import threading
from dataclasses import asdict

import httpx
import pytest

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine
from tests.server.conftest import Client, StartServer, error_of
from tests.server.engines import CONTEXT_LENGTH, KERNELS, MODEL, crashing_engine, letter_engine, unloadable_engine


def test_a_ready_server_says_what_it_serves(client: Client) -> None:
    response = client.get("/health")
    body = response.json()
    assert response.status_code == 200
    assert (body["status"], body["reason"]) == ("ok", None)
    assert body["model"]["id"] == MODEL
    assert body["model"]["drafters"] == ["ngram"]
    assert body["kernels"] == asdict(KERNELS)
    assert set(body["versions"]) == {"mtplx", "mlx", "mlx-lm"}


def test_the_model_is_listed_and_found_by_its_name(client: Client) -> None:
    listed = client.get("/v1/models").json()
    [model] = listed["data"]
    assert listed["object"] == "list"
    assert (model["id"], model["object"], model["max_model_len"]) == (MODEL, "model", CONTEXT_LENGTH)
    assert client.get(f"/v1/models/{MODEL}").json() == model
    assert error_of(client.get("/v1/models/other"), 404)["code"] == "model_not_found"


def test_a_server_answers_while_it_loads(start_server: StartServer) -> None:
    proceed = threading.Event()
    states = []

    def load_slowly(settings: Settings) -> LoadedEngine:
        proceed.wait()
        return letter_engine()(settings)

    def seen_loading(client: Client) -> None:
        states.append(client.get("/health").json()["status"])
        assert client.get("/health").status_code == 503
        assert client.get("/metrics").status_code == 200
        refused = client.complete(prompt="abc")
        assert "still loading" in error_of(refused, 503)["message"]
        assert int(refused.headers["retry-after"]) >= 1
        proceed.set()

    client = start_server(load_slowly, while_loading=seen_loading)
    assert states == ["loading"]
    assert client.complete(prompt="abc").status_code == 200


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/models", f"/v1/models/{MODEL}"])
def test_a_server_whose_model_cannot_be_loaded_says_why(start_server: StartServer, path: str) -> None:
    client = start_server(unloadable_engine)
    health = client.get("/health")
    assert health.status_code == 503
    assert health.json()["status"] == "failed"
    assert "there is no such model; look elsewhere" in health.json()["reason"]
    body = {"model": MODEL, "prompt": "a"} if path == "/v1/completions" else None
    if path == "/v1/chat/completions":
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    response = client.get(path) if body is None else client.post(path, json=body)
    error = error_of(response, 503)
    assert "look elsewhere" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_crash_of_the_loop_reaches_open_requests_and_health(start_server: StartServer, stream: bool) -> None:
    client = start_server(crashing_engine)
    response = client.complete(prompt="abc", stream=stream)
    assert response.status_code == 503
    assert "a bolt came loose" in response.text
    assert "Traceback" not in response.text
    assert client.get("/health").json()["status"] == "failed"
    assert client.complete(prompt="abc").status_code == 503
    assert client.metric("mtplx:request_success_total", finished_reason="error") == 1


def test_a_server_that_is_to_exit_on_failure_answers_what_is_open_and_exits(start_server: StartServer) -> None:
    def has_gone(client: Client) -> bool:
        try:
            client.get("/health")
        except httpx.TransportError:
            return True
        return False

    client = start_server(crashing_engine, exit_on_failure=True)
    assert "a bolt came loose" in error_of(client.complete(prompt="abc"), 503)["message"]
    client.wait_for(has_gone)


def test_the_api_description_has_no_reference_that_leads_nowhere(client: Client) -> None:
    description = client.get("/openapi.json").json()
    references = re.findall(r'"\$ref": ?"#/([^"]+)"', json.dumps(description))
    assert references
    for reference in references:
        place = description
        for step in reference.split("/"):
            place = place[step.replace("~1", "/")]
