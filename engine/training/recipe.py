"""What a head is to be made of, and what it leaves behind on disk. Plain data."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplx.engine.errors import EngineError
from mtplx.engine.training.trainer import TrainingPlan


@dataclass(frozen=True)
class Recipe:
    """`out` is the head's folder. Texts of `num_tokens` tokens in all come from `data`, if given, or from the model.

    Their hidden states may take `disk_bytes`. The head proposes `vocabulary_size` tokens, None all. `minutes` shortens
    the training that `plan` describes. `bits` are those of the head's weights on disk, None 32.
    """

    out: Path
    data: Path | None = None
    num_tokens: int = 1_100_000
    answer_tokens: int = 256
    disk_bytes: int = 8 * 10**9
    vocabulary_size: int | None = 8192
    minutes: float | None = None
    bits: int | None = 8
    plan: TrainingPlan = field(default_factory=TrainingPlan)

    @property
    def work(self) -> Path:
        """Where texts, states and checkpoints lie until the head is done, and may be deleted after."""
        return self.out / "training"

    def text_settings(self, fingerprint: str) -> Mapping[str, Any]:
        """What the texts rest on, for a model known by this."""
        data = None if self.data is None else hashlib.blake2b(self.data.read_bytes(), digest_size=16).hexdigest()
        return {"model": fingerprint, "data": data, "answer_tokens": self.answer_tokens, "seed": self.plan.seed}


def remember(path: Path, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the file at `path` tells, which are these settings if there was none. Raises EngineError."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=1) + "\n")
    try:
        told: Mapping[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise EngineError(f"{path} is damaged ({error}); delete its folder to begin anew") from None
    return told
