"""A checkpoint is whole, and of the training that is asked for."""

from pathlib import Path

import mlx.core as mx
import pytest

from mtplx.engine.errors import EngineError, InvalidRequestError
from mtplx.engine.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

SETTINGS = {"seed": 0, "epochs": 3}


def test_what_was_saved_last_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    assert load_checkpoint(path, SETTINGS) is None
    for step in (4, 5):
        save_checkpoint(path, Checkpoint(SETTINGS, step, 9, {"weight": mx.full((3,), step)}))
    loaded = load_checkpoint(path, SETTINGS)
    assert loaded is not None
    assert (loaded.step, loaded.num_steps, loaded.arrays["weight"].tolist()) == (5, 9, [5, 5, 5])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_other_settings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, Checkpoint(SETTINGS, 1, 9, {"weight": mx.zeros(3)}))
    with pytest.raises(InvalidRequestError, match="was begun with epochs 3, not 4: run it so to go on, or delete"):
        load_checkpoint(path, {**SETTINGS, "epochs": 4})


def test_a_damaged_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(b"something else")
    with pytest.raises(EngineError, match="is damaged"):
        load_checkpoint(path, SETTINGS)
