"""A training as it stands, on disk. Knows files; knows no training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtplx.engine.errors import EngineError, InvalidRequestError


@dataclass(frozen=True)
class Checkpoint:
    """`step` of `num_steps` are done, and left `arrays` behind. `settings` are those that a training rests on."""

    settings: Mapping[str, Any]
    step: int
    num_steps: int
    arrays: Mapping[str, mx.array]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write it in place of the last one, at once: there is always one or the other, whole."""
    told = {"settings": checkpoint.settings, "step": checkpoint.step, "num_steps": checkpoint.num_steps}
    unfinished = path.with_suffix(".unfinished.safetensors")
    mx.save_safetensors(str(unfinished), dict(checkpoint.arrays), metadata={"training": json.dumps(told)})
    unfinished.replace(path)


def load_checkpoint(path: Path, settings: Mapping[str, Any]) -> Checkpoint | None:
    """The last one, None if there is none. Raises InvalidRequestError if it rests on other settings, EngineError if it
    is damaged."""
    if not path.exists():
        return None
    try:
        loaded: Any = mx.load(str(path), return_metadata=True)
        arrays, metadata = loaded
        checkpoint = Checkpoint(**json.loads(metadata["training"]), arrays=arrays)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} is damaged ({error}); delete it to begin the training anew") from None
    check_same(path, checkpoint.settings, settings)
    return checkpoint


def check_same(path: Path, begun_with: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises InvalidRequestError, which names the differences."""
    names = sorted(begun_with.keys() | wanted.keys())
    differences = [
        f"{name.replace('_', ' ')} {begun_with.get(name)}, not {wanted.get(name)}"
        for name in names
        if begun_with.get(name) != wanted.get(name)
    ]
    if differences:
        raise InvalidRequestError(
            f"{path} was begun with {'; '.join(differences)}: run it so to go on, or delete {path} to begin anew"
        )
