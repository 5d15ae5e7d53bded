"""Slashes too many change nothing."""

import pytest

from mtplx.server.paths import tidy
from tests.server.conftest import Client, StartServer, error_of
from tests.server.engines import MODEL


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", "/"), ("//", "/"), ("/v1/models", "/v1/models"), ("//v1///models//", "/v1/models"), ("/a b//", "/a b")],
)
def test_a_tidy_path_has_single_slashes_and_none_at_the_end(path: str, expected: str) -> None:
    assert tidy(path) == expected


@pytest.mark.parametrize("path", ["/v1/completions/", "/v1//completions", "//v1/completions", "///v1//completions//"])
def test_a_body_reaches_its_route_without_a_redirect(client: Client, path: str) -> None:
    response = client.post(f"{client.base_url}{path}", json={"model": MODEL, "prompt": "abc", "max_tokens": 3})
    assert (response.status_code, response.history) == (200, [])
    assert response.json()["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("path", ["//v1/models/", "/health/", "//metrics"])
def test_so_does_a_get(client: Client, path: str) -> None:
    assert client.get(f"{client.base_url}{path}").status_code == 200


@pytest.mark.parametrize("name", ["a/b", "/models/a.gguf", "a//b/"])
@pytest.mark.parametrize("escape", [False, True])
def test_a_model_is_retrieved_by_its_name_whatever_slashes_that_has(
    start_server: StartServer, name: str, escape: bool
) -> None:
    client = start_server(served_model_name=name)
    for end in ("", "/"):
        response = client.get(f"/v1/models/{name.replace('/', '%2F') if escape else name}{end}")
        assert response.json()["id"] == name
    error_of(client.get("/v1/models/b"), 404)
