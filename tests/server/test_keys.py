"""API keys: who may use the server, and that nothing tells a key."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from mtplx.configs.settings import Settings, SettingsError, load_settings
from mtplx.server.cli import main
from mtplx.server.keys import KeyRing, read_keys, require_protection
from mtplx.server.running import Server
from tests.server.conftest import Client, StartServer, error_of, running_server
from tests.server.engines import MODEL, letter_engine

KEY = "sk-one-Zx9"
OTHER_KEY = "sk-two-Qw7"
GUARDED = ("/v1/models", "/v1/models/any", "/v1/nothing", "/metrics")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Client]:
    with running_server(letter_engine(), api_key=[f"{KEY},{OTHER_KEY}"]) as client:
        yield client


def test_a_request_needs_one_of_the_keys(guarded: Client) -> None:
    body = {"model": MODEL, "prompt": "a", "max_tokens": 1}
    for key in (KEY, OTHER_KEY):
        assert guarded.post("/v1/completions", json=body, headers=bearer(key)).status_code == 200
        assert guarded.get("/metrics", headers=bearer(key)).status_code == 200
    assert guarded.get("/metrics", headers={"authorization": f"bearer  {KEY}"}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer ü".encode()],
)
def test_any_other_is_answered_401_as_openai_does(guarded: Client, header: str | bytes | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for path in GUARDED:
        response = guarded.get(path, headers=headers)
        error = error_of(response, 401)
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["x-request-id"]
    error_of(guarded.post("/v1/completions", content=b"{", headers=headers), 401)


def test_health_and_documents_are_open(guarded: Client) -> None:
    for path in ("/health", "/docs", "/openapi.json"):
        assert guarded.get(path).status_code == 200
    assert guarded.head("/health").status_code == 200


def test_metrics_are_open_if_a_setting_says_so(start_server: StartServer) -> None:
    client = start_server(api_key=[KEY], public_metrics=True)
    assert client.get("/metrics").status_code == 200
    assert client.get("/v1/models").status_code == 401


def test_without_keys_everything_is_open(client: Client) -> None:
    for headers in ({}, bearer("anything")):
        assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("//v1/models", "/v1/models/", "//metrics//", "/v1/models;/health", "/v1/models?/health"),
        *("/health/../v1/models", "/health%2F..%2Fv1%2Fmodels", "/v1/models%00/health", "/health/x", "/healthy"),
    ],
)
def test_no_spelling_of_a_path_opens_a_door(guarded: Client, path: str) -> None:
    with socket.create_connection((guarded.base_url.host, guarded.base_url.port)) as connection:  # as it is
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
        assert connection.makefile("rb").readline().split()[1] == b"401"


def test_slashes_shut_none(guarded: Client) -> None:
    assert guarded.get(f"{guarded.base_url}//health/").status_code == 200


def test_nothing_tells_a_key(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = [guarded.get("/health").text]
    told += [guarded.get("/v1/models", headers=bearer(key)).text for key in (KEY, f"{KEY}-wrong")]
    told += [guarded.get(f"/v1/models?key={KEY}").text]
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("mtplx", "uvicorn"))]
    assert ours
    assert not [text for text in told + ours if KEY in text]
    assert KEY not in repr(Settings(api_key=[KEY]))


def test_every_key_of_a_ring_is_held_and_no_other() -> None:
    ring = KeyRing([KEY, OTHER_KEY])
    assert [ring.holds(key) for key in (KEY, OTHER_KEY, KEY + OTHER_KEY, "")] == [True, True, False, False]
    assert not KeyRing([]).holds("")


def test_keys_come_from_flags_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the team\n\n  c \nd#1\n")
    assert read_keys(load_settings({"api_key": ["a,b", "x"], "api_key_file": str(path)})) == ["a", "b", "x", "c", "d#1"]
    monkeypatch.setenv("MTPLX_API_KEY", "e, f")
    assert read_keys(load_settings({})) == ["e", "f"]
    assert read_keys(load_settings({"api_key": ["a"]})) == ["a"]


@pytest.mark.parametrize("given", [[""], ["a,,b"], ["with space"], ["schlüssel"]])
def test_a_key_that_no_header_can_carry_is_refused_without_being_told(given: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"api_key": given})
    assert str(caught.value) == (
        "api_key: a key must be of printable ASCII characters, without spaces and commas (from flags)"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# none\n", "holds no key"),
        (b"good\nnot good\n", "line 2: a key must be of printable ASCII"),
        (b"\xff\xfe", "is not a text file"),
        (None, "No such file"),
    ],
)
def test_a_file_without_usable_keys_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"^api_key_file: .*{message}") as caught:
        read_keys(Settings(api_key_file=path))
    assert "good\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
def test_an_address_that_others_reach_needs_keys_or_a_word(address: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        require_protection(address, Settings())
    assert "--api-key" in str(caught.value)
    assert "--allow-anonymous" in str(caught.value)
    require_protection(address, Settings(api_key=[SecretStr(KEY)]))
    require_protection(address, Settings(api_key_file=tmp_path))
    require_protection(address, Settings(allow_anonymous=True))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_an_address_of_this_machine_needs_none(address: str) -> None:
    require_protection(address, Settings())


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        pytest.param(
            "::", marks=pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
        ),
    ],
)
def test_a_server_for_all_without_a_key_does_not_start(
    host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[object] = []
    monkeypatch.setattr(Server, "run", lambda server, sockets: served.append(server))
    assert main(["serve", "--host", host, "--port", "0"]) == 2
    assert served == []
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mtplx: ")]
    assert line.startswith(f"mtplx: host: other machines reach {host}, and there is no API key; give one")
