"""`mtplx bench` from its words to what it prints and writes, over a model that writes letters."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mtplx.engine import session
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Draft, Verdict
from mtplx.server.bench import measuring
from mtplx.server.cli import main
from tests.server.engines import letter_model, letter_speculator
from tests.tiny_models import tiny_model_folder

FEW = ["--categories", "copy", "--limit", "2", "--max-tokens", "12", "--drafters", "ngram", "--depths", "0,3"]


class SloppySpeculator(Speculator):
    """Accepts every draft unseen."""

    def verify(self, sequences: Sequence[Any], drafts: Sequence[Draft], prompts: Any = ()) -> list[Verdict]:
        verdicts = super().verify(sequences, drafts, prompts)
        return [Verdict(len(draft), verdict.token) for draft, verdict in zip(drafts, verdicts, strict=True)]


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "load_model", lambda spec: letter_model())
    monkeypatch.setattr(session, "make_speculator", lambda *_, **__: letter_speculator())


def interrupt_after(monkeypatch: pytest.MonkeyPatch, num_runs: int) -> None:
    """Press Ctrl-C during the run after so many."""
    measure_one = measuring.measure_one
    done: list[None] = []

    def interrupted(*arguments: Any) -> measuring.Run:
        if len(done) == num_runs:
            raise KeyboardInterrupt
        done.append(None)
        return measure_one(*arguments)

    monkeypatch.setattr(measuring, "measure_one", interrupted)


def test_help_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "bench " in capsys.readouterr().out


@pytest.mark.usefixtures("letters")
def test_a_benchmark_prints_a_table_and_no_bar_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *FEW, "--check-exact"]) == 0
    output = capsys.readouterr()
    assert "copy: 2 prompts" in output.out
    assert "exact: 2 texts are those of plain decoding" in output.out
    assert output.err == ""


@pytest.mark.usefixtures("letters")
def test_the_json_has_every_run_the_summary_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    assert main(["bench", *FEW, "--temperatures", "0,0.7", "--repeats", "2", "--json", str(path)]) == 0
    results = json.loads(path.read_text())
    assert len(results["runs"]) == 2 * 2 * 2 * 2
    assert {run["cell"]["temperature"] for run in results["runs"]} == {0.0, 0.7}
    assert all(len(run["tokens"]) == 12 for run in results["runs"])
    assert [line["cell"]["drafter"] for line in results["summary"]] == ["none", "ngram", "none", "ngram"]
    assert results["environment"]["model"] == letter_model().id
    assert {"mtplx", "mlx", "python"} <= results["environment"]["versions"].keys()
    assert all(results["environment"][name] for name in ("cpu", "kernels", "processors"))
    assert results["options"]["repeats"] == 2


@pytest.mark.usefixtures("letters")
def test_the_picture_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    assert main(["bench", *FEW, "--png", str(tmp_path / "bench.png")]) == 0
    assert (tmp_path / "bench.png").stat().st_size > 0


@pytest.mark.usefixtures("letters")
def test_without_matplotlib_a_picture_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mtplx.server.bench.picture", None)
    interrupt_after(monkeypatch, 0)
    assert main(["bench", *FEW, "--png", str(tmp_path / "bench.png")]) == 2
    assert "pip install 'mtplx[bench]'" in capsys.readouterr().err


def test_text_that_speculation_changed_is_shown_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = letter_speculator()
    sloppy = SloppySpeculator(honest.target, honest.drafters, letter_model().tokenizer)
    monkeypatch.setattr(session, "load_model", lambda spec: letter_model())
    monkeypatch.setattr(session, "make_speculator", lambda *_, **__: sloppy)
    assert main(["bench", *FEW, "--max-tokens", "40"]) == 0
    assert main(["bench", *FEW, "--max-tokens", "40", "--check-exact"]) == 1
    assert "mtplx: not exact: prompt copy/" in capsys.readouterr().err


@pytest.mark.usefixtures("letters")
def test_ctrl_c_leaves_a_table_of_the_prompts_that_are_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(monkeypatch, 2 + 2 + 1)  # a warm-up, a prompt, and half of another
    assert main(["bench", *FEW]) == 130
    assert "copy: 1 prompts" in capsys.readouterr().out


@pytest.mark.usefixtures("letters")
def test_ctrl_c_before_anything_is_done_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(monkeypatch, 1)
    assert main(["bench", *FEW]) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("flag", "value", "complaint"),
    [
        ("--depths", "-1", "--depths: expected a whole number of at least 0, not '-1'"),
        ("--depths", "3,,8", "--depths: expected values with commas"),
        ("--depths", "deep", "--depths"),
        ("--drafters", "oracle", "there is no drafter 'oracle'; there are "),
        ("--temperatures", "3", "--temperatures: expected numbers from 0 to 2"),
        ("--temperatures", "nan", "--temperatures"),
        ("--temperatures", "warm", "--temperatures"),
        ("--repeats", "0", "--repeats: expected a whole number of at least 1"),
        ("--max-tokens", "1.5", "--max-tokens"),
        ("--limit", "none", "--limit"),
        ("--acceptance", "kind", "--acceptance"),
    ],
)
def test_nonsense_is_told_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str], flag: str, value: str, complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", f"{flag}={value}"])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        lambda folder: ["--prompts", str(folder / "none.jsonl")],
        lambda folder: ["--prompts", str(folder / "empty.txt")],
        lambda folder: ["--prompts", str(folder / "broken.jsonl")],
        lambda folder: ["--categories", "none"],
        lambda folder: ["--json", str(folder / "none" / "bench.json")],
    ],
)
def test_files_that_cannot_serve_are_told_in_one_line_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: Callable[[Path], list[str]]
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "broken.jsonl").write_text("{\n")
    assert main(["bench", "--model", str(tmp_path / "none.gguf"), *words(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mtplx: ")
    assert "none.gguf" not in line


@pytest.mark.usefixtures("letters")
def test_a_drafter_that_the_model_does_not_allow_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *FEW, "--drafters", "self"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "drafter 'self' is not available here" in line


@pytest.mark.slow
def test_the_command_measures_a_model_in_a_folder(tmp_path: Path) -> None:
    folder, results = tiny_model_folder(tmp_path, "llama"), tmp_path / "bench.json"
    (tmp_path / "prompts.txt").write_text("in the end and the\nthe other\n")
    words = ["--model", str(folder), "--prompts", str(tmp_path / "prompts.txt"), "--json", str(results)]
    grid = ["--drafters", "ngram,self", "--depths", "3,8", "--temperatures", "0,0.7", "--max-tokens", "24"]
    assert main(["bench", *words, *grid, "--check-exact"]) == 0
    runs = json.loads(results.read_text())["runs"]
    assert len(runs) == 2 * 2 * (1 + 2 * 2)
    assert sum(sum(run["accepted_at"]) for run in runs if run["cell"]["drafter"] == "self") > 0
