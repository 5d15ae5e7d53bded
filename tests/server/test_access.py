"""What every request meets first: an id, the log, and HEAD."""

import logging
from dataclasses import replace

import pytest

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine
from tests.fakes import ByteTokenizer
from tests.server.conftest import Client, StartServer, error_of
from tests.server.engines import letter_engine


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/nothing", "/v1/completions"])
def test_every_response_has_an_id_of_its_own(client: Client, path: str) -> None:
    first, second = (client.get(path).headers["x-request-id"] for _ in range(2))
    assert first != second
    assert first.startswith("req-")


def test_streams_and_replies_have_one_too(client: Client) -> None:
    for stream in (False, True):
        assert client.complete(prompt="a", max_tokens=1, stream=stream).headers["x-request-id"]


@pytest.mark.parametrize("given", ["my-id_1", "a" * 128, "3f2c:1/2+x=="])
def test_a_sane_id_of_the_clients_is_kept(client: Client, given: str) -> None:
    assert client.get("/health", headers={"x-request-id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a" * 129, "with space", "<script>", "ü".encode()])
def test_another_one_is_not(client: Client, given: str) -> None:
    assert client.get("/health", headers={"x-request-id": given}).headers["x-request-id"].startswith("req-")


def test_the_log_tells_each_request_with_its_id(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mtplx.server.access"):
        client.get("/v1/nothing", headers={"x-request-id": "mine"})
    [line] = [message for message in caplog.messages if message.endswith("mine")]
    assert '"GET /v1/nothing HTTP/1.1" 404 mine' in line


def test_a_mistake_of_the_servers_is_told_with_its_id(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            raise RuntimeError("a bolt came loose")

    def broken_engine(settings: Settings) -> LoadedEngine:
        engine = letter_engine()(settings)
        return replace(engine, model=replace(engine.model, tokenizer=Broken()))

    client = start_server(broken_engine)
    with caplog.at_level(logging.INFO, "mtplx.server.access"):
        response = client.complete(prompt="abc")
        logged = f"request {response.headers['x-request-id']} failed"
        client.wait_for(lambda _: logged in caplog.messages)  # after the answer
    assert response.headers["x-request-id"] in error_of(response, 500)["message"]
    assert any("500 " + response.headers["x-request-id"] in message for message in caplog.messages)


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models"])
def test_head_answers_like_get_without_a_body(client: Client, path: str) -> None:
    response = client.head(path)
    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["content-type"] == client.get(path).headers["content-type"]
    assert int(response.headers["content-length"]) > 0


def test_head_of_what_can_only_be_posted_is_not_allowed(client: Client) -> None:
    assert client.head("/v1/completions").status_code == 405
