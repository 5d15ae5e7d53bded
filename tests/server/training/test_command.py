"""`mtplx train-head`: what its words become, and how it ends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.training.evaluation import Measured
from mtplx.engine.training.head_training import Listener
from mtplx.engine.training.recipe import Recipe
from mtplx.engine.training.trainer import TrainingPlan
from mtplx.server.cli import main
from mtplx.server.training import command, progress
from tests.engine.training.predictable import predictable_model

MEASURED = Measured((0.5, 0.4), (0.5, 0.25), (0.45, 0.35), 100)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe, Mapping[str, Any]]]:
    """The recipes and provenances that heads are trained by, in place of training them."""
    asked = []

    def train_head(loaded: LoadedModel, recipe: Recipe, provenance: Mapping[str, Any], listener: Listener) -> Measured:
        asked.append((recipe, provenance))
        listener.begin("texts", 100, 40)
        listener.advance(10, "a note")
        return MEASURED

    monkeypatch.setattr(command, "load_model", lambda spec: predictable_model())
    monkeypatch.setattr(command, "train_head", train_head)
    return asked


def test_the_words_make_a_recipe_and_the_end_tells_what_was_measured(
    trained: list[tuple[Recipe, Mapping[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--tokens 1000 --disk-gb 0.5 --vocabulary-size all --chained-steps 3 --bits 32 --minutes 1.5 --seed 7"
    assert main(["train-head", "--out", str(tmp_path / "head"), *words.split()]) == 0
    [(recipe, provenance)] = trained
    assert recipe == Recipe(
        tmp_path / "head",
        num_tokens=1000,
        disk_bytes=5 * 10**8,
        vocabulary_size=None,
        minutes=1.5,
        bits=None,
        plan=TrainingPlan(num_chained=3, epochs=4, seed=7),
    )
    assert provenance["command"].startswith("mtplx ")
    assert set(provenance["versions"]) == {"mtplx", "mlx", "mlx-lm"}
    printed = capsys.readouterr()
    assert "0.50 / 0.40, none missed before 0.50 / 0.25" in printed.out
    assert "texts: 40 of 100 done" in printed.err


def test_ctrl_c_tells_how_to_go_on(
    trained: list[tuple[Recipe, Mapping[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*arguments: object) -> Measured:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "train_head", interrupt)
    assert main(["train-head", "--out", str(tmp_path)]) == 130
    assert f"run the same command again to go on from {tmp_path / 'training'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "--out"),
        (["--out", "x", "--tokens", "0"], "--tokens: expected a whole number of at least 1, not '0'"),
        (["--out", "x", "--disk-gb", "inf"], "--disk-gb: expected a number above 0, not 'inf'"),
        (["--out", "x", "--vocabulary-size", "most"], "--vocabulary-size: expected a whole number"),
        (["--out", "x", "--bits", "3"], "--bits"),
    ],
)
def test_words_that_make_no_recipe_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train-head", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_data_that_cannot_be_read_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "head"
    assert main(["train-head", "--out", str(out), "--data", str(tmp_path / "nowhere.txt")]) == 2
    assert "nowhere.txt: No such file" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["train-head", "--out", str(tmp_path / "file")]) == 1
    assert "cannot be made" in capsys.readouterr().err


def test_without_a_terminal_a_line_tells_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = iter([0.0, 0.0, 50.0, 61.0, 61.0, 70.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now_s))
    with progress.TrainingProgress() as told:
        told.begin("training", 10, 2)
        for _ in range(3):
            told.advance(1, "loss 2.50")
    assert capsys.readouterr().err == "training: 2 of 10 done\ntraining: 4 of 10 done loss 2.50\n"
