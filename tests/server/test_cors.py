"""Pages in browsers use the server only where a setting lets them."""

from collections.abc import Iterator

import pytest

from mtplx.configs.settings import SettingsError, load_settings
from tests.server.conftest import Client, StartServer, running_server
from tests.server.engines import MODEL, letter_engine

PAGE = "https://chat.example.org"
OTHER_PAGE = "http://localhost:3000"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Client]:
    with running_server(letter_engine(), cors_origin=[PAGE, OTHER_PAGE], api_key=["secret"]) as client:
        yield client


def test_nobody_is_let_in_by_default(client: Client) -> None:
    response = client.get("/v1/models", headers={"origin": PAGE})
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert client.options("/v1/completions", headers={"origin": PAGE, **ASKS}).status_code == 405


@pytest.mark.parametrize("origin", [PAGE, OTHER_PAGE])
def test_a_browser_may_ask_before_it_shows_a_key(guarded: Client, origin: str) -> None:
    response = guarded.options("/v1//chat/completions/", headers={"origin": origin, **ASKS})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin
    assert response.headers["access-control-allow-headers"] == ASKS["access-control-request-headers"]


def test_another_origin_is_not_let_in(guarded: Client) -> None:
    response = guarded.options("/v1/completions", headers={"origin": "https://evil.example.org", **ASKS})
    assert response.status_code == 400
    assert "access-control-allow-origin" not in response.headers


def test_a_page_reads_replies_and_errors_and_their_ids(guarded: Client) -> None:
    headers = {"origin": PAGE, "authorization": "Bearer secret"}
    body = {"model": MODEL, "prompt": "a", "max_tokens": 1}
    replies = [
        guarded.post("/v1/completions", json=body, headers=headers),
        guarded.post("/v1/completions", json={**body, "prompt": "a!"}, headers=headers),
        guarded.get("/v1/models", headers={"origin": PAGE}),
    ]
    assert [reply.status_code for reply in replies] == [200, 500, 401]
    for reply in replies:
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "X-Request-Id" in reply.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in reply.headers


def test_all_origins_can_be_let_in(start_server: StartServer) -> None:
    response = start_server(cors_origin=["*"]).get("/v1/models", headers={"origin": PAGE})
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("given", ["example.org", "https://example.org/", "https://example.org/chat", "null", ""])
def test_what_is_no_origin_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match=r"^cors_origin: an origin is like "):
        load_settings({"cors_origin": [given]})
