"""Where a setting's value comes from, and what happens to a bad one."""

from pathlib import Path

import pytest

from mtplx.configs.settings import Settings, SettingsError, load_settings, preset_names


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"MTPLX_{name.upper()}", raising=False)


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text("port = 1001\nmax_running = 2\nmax_waiting = 3\n")
    return path


def test_a_flag_beats_the_environment_beats_a_preset_beats_the_default(
    preset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTPLX_PORT", "1002")
    monkeypatch.setenv("MTPLX_MAX_RUNNING", "5")
    settings = load_settings({"preset": str(preset), "port": "1003"})
    assert (settings.port, settings.max_running, settings.max_waiting) == (1003, 5, 3)
    assert settings.host == "127.0.0.1"


def test_the_environment_can_name_the_preset(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLX_PRESET", str(preset))
    assert load_settings({}).port == 1001


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLX_MODEL", "")
    assert load_settings({}).model is None


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_that_ships_loads(name: str) -> None:
    assert load_settings({"preset": name}).preset == name


def test_the_plain_preset_leaves_a_drafter_for_requests_that_ask_for_a_depth() -> None:
    settings = load_settings({"preset": "plain"})
    assert (settings.speculative_depth, settings.drafter) == (0, "auto")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "prot: no such setting (from preset"),
        ("port = 70000", "port: Input should be less than or equal to 65535 (from preset"),
        ("preset = 'plain'", "cannot name another"),
        ("port = ", "Invalid value"),
        ("prefix_cache_dir = 'here'\nprefix_cache_mb = 0", "prefix_cache_dir: there is nothing to keep there while"),
        ("speculative_depth = 17", "speculative_depth: 17 is more than max_speculative_depth, 16"),
    ],
)
def test_a_bad_preset_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings({"preset": str(path)})
    assert message in str(caught.value)


def test_a_missing_preset_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(SettingsError, match=r"preset nonsense: not found; there are .*plain"):
        load_settings({"preset": "nonsense"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drafter", "oracle"),
        ("metrics_namespace", "a:b"),
        ("shutdown_grace_s", "-1"),
        ("shutdown_grace_s", "inf"),
        ("shutdown_grace_s", "nan"),
        ("max_running", "0"),
        ("log_level", "loud"),
        ("max_step_rows", "0"),
        ("cache_memory_mb", "0"),
        ("prefix_cache_mb", "-1"),
        ("queue_timeout_s", "0"),
        ("queue_timeout_s", "inf"),
        ("request_timeout_s", "0"),
        ("request_timeout_s", "nan"),
        ("keep_alive_s", "-1"),
        ("max_stream_buffer", "0"),
        ("exit_on_failure", "perhaps"),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MTPLX_{name.upper()}", value)
    with pytest.raises(SettingsError, match=rf"^{name}: .*\(from the environment\)$"):
        load_settings({})


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in Settings.model_fields.values())
