"""The command line: what it prints and how it ends."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

import mtplx
from mtplx.configs.settings import Settings
from mtplx.engine import session
from mtplx.engine.session import Piece
from mtplx.server import generating, running
from mtplx.server.cli import main
from tests.server.engines import letter_model, letter_speculator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """`generate` decodes with the letters' model instead of loading one."""
    monkeypatch.setattr(session, "load_model", lambda spec: letter_model())
    monkeypatch.setattr(session, "make_speculator", lambda model, **options: letter_speculator())


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"mtplx {mtplx.__version__}\n"


def test_a_server_that_is_to_exit_on_failure_exits_with_status_1_and_the_reason() -> None:
    command = [sys.executable, "-m", "mtplx", "serve", "--port", "0", "--exit-on-failure", "--model", "/no/such.gguf"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("mtplx: the engine has failed: the model could not be loaded: ")
    assert "/no/such.gguf" in last
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [([], False), (["--exit-on-failure"], True), (["--exit-on-failure", "false", "--port", "1"], False)],
)
def test_a_flag_that_may_be_true_is_when_it_stands_alone(
    flags: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = []
    monkeypatch.setattr(running, "run_server", lambda settings, load_engine: served.append(settings))
    assert main(["serve", *flags]) == 0
    assert [settings.exit_on_failure for settings in served] == [expected]


def test_a_flag_for_a_list_may_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(running, "run_server", lambda settings, load_engine: served.append(settings))
    assert main(["serve", "--api-key", "a", "--api-key", "b,c", "--cors-origin", "*"]) == 0
    [settings] = served
    assert [key.get_secret_value() for key in settings.api_key] == ["a", "b", "c"]
    assert settings.cors_origin == ("*",)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    output = capsys.readouterr().out
    assert all(command in output for command in ("serve", "generate", "train-head", "models"))


def test_every_setting_is_a_flag_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    output = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in output for name in Settings.model_fields)


def test_help_imports_nothing_slow() -> None:
    code = """
import sys
from mtplx.server.cli import main
try:
    main(["--help"])
except SystemExit:
    print({"mlx", "fastapi", "uvicorn", "transformers", "huggingface_hub", "numpy"} & set(sys.modules))
"""
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "set()"


def test_a_bad_setting_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "70000"]) == 2
    assert capsys.readouterr().err == "mtplx: port: Input should be less than or equal to 65535 (from flags)\n"


def test_a_model_that_is_not_there_is_told_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["generate", "--model", str(tmp_path / "none.gguf"), "--prompt", "Hi"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mtplx: ")
    assert "none.gguf" in line


@pytest.mark.usefixtures("letters")
def test_generate_writes_the_text_and_then_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--prompt", "abc", "--max-tokens", "40", "--speculative-depth", "2", "--drafter", "ngram"]
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert len(output.out) == len("\n") + 40
    assert output.err.startswith("40 tokens in ")
    assert "11 of 11 draft tokens accepted (100%); 1.38 tokens per round" in output.err


@pytest.mark.usefixtures("letters")
def test_generate_colours_accepted_drafts_and_changes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--prompt", "abc", "--max-tokens", "40", "--speculative-depth", "2", "--drafter", "ngram"]
    main(arguments)
    plain = capsys.readouterr().out
    main([*arguments, "--show-drafts"])
    coloured = capsys.readouterr().out
    assert coloured.count("\x1b[32m") == coloured.count("\x1b[0m") == 11
    assert coloured.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain


@pytest.mark.usefixtures("letters")
def test_generate_reads_the_prompt_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["generate", "--prompt", "abc", "--max-tokens", "9"])
    from_flag = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc"))
    main(["generate", "--max-tokens", "9"])
    assert capsys.readouterr().out == from_flag


@pytest.mark.usefixtures("letters")
def test_generate_with_chat_answers_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    main(["generate", "--prompt", "<user>abc\n<assistant>", "--max-tokens", "9"])
    rendered = capsys.readouterr().out
    main(["generate", "--prompt", "abc", "--chat", "--max-tokens", "9"])
    assert capsys.readouterr().out == rendered


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("flags", [["--max-tokens", "0"], ["--drafter", "self"], ["--prompt", ""]])
def test_generate_tells_in_one_line_what_the_model_cannot_do(
    capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert main(["generate", "--prompt", "abc", *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mtplx: ")


@pytest.mark.parametrize(
    ("flag", "value", "field"),
    [
        ("--temperature", "nan", "temperature"),
        ("--temperature", "2.5", "temperature"),
        ("--top-p", "-1", "top_p"),
        ("--top-p", "inf", "top_p"),
        ("--seed", str(2**64), "seed"),
    ],
)
def test_generate_tells_a_value_out_of_range_in_one_line(
    capsys: pytest.CaptureFixture[str], flag: str, value: str, field: str
) -> None:
    assert main(["generate", "--prompt", "abc", f"{flag}={value}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mtplx: {field} must be")


def test_generate_tells_in_one_line_that_a_prompt_is_no_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def complaint(*flags: str) -> str:
        assert main(["generate", *flags]) == 2
        return capsys.readouterr().err

    assert complaint("--prompt", "\udcff") == "mtplx: the prompt is not valid UTF-8\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    assert complaint() == "mtplx: the prompt is not valid UTF-8\n"


@pytest.mark.usefixtures("letters")
def test_generate_replaces_what_the_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, encoding="ascii"))
    monkeypatch.setattr(session.EngineSession, "generate_pieces", lambda *_: [Piece("naïve", False)])
    monkeypatch.setattr(generating, "_summary", lambda *_: "")
    assert main(["generate", "--prompt", "abc"]) == 0
    sys.stdout.flush()
    assert screen.getvalue() == b"na?ve\n"


@pytest.mark.usefixtures("letters")
def test_ctrl_c_ends_generate_quietly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.EngineSession, "step", interrupt)
    assert main(["generate", "--prompt", "abc"]) == 130
    assert capsys.readouterr().err == "\n"


def test_models_are_listed_with_their_origin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    (tmp_path / "models--owner--name" / "snapshots" / "1").mkdir(parents=True)
    (tmp_path / "models--owner--name" / "refs").mkdir()
    (tmp_path / "models--owner--name" / "snapshots" / "1" / "model.safetensors").write_bytes(b"0" * 3_000_000)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert main(["models"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("owner/name ")]
    assert "3 MB  Hugging Face hub: " in line


def test_models_tells_which_kernels_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTPLX_NATIVE_KERNELS", "false")
    assert main(["models"]) == 0
    assert "kernels: MLX's own: the setting native_kernels turns" in capsys.readouterr().out.splitlines()[0]
