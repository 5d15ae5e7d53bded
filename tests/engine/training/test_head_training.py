"""From a model to a head: a model with something to foresee is foreseen, and nothing that interrupts it matters."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.models.head_folder import load_head, read_head_config
from mtplx.engine.training import head_training
from mtplx.engine.training.evaluation import Measured
from mtplx.engine.training.head_training import train_head
from mtplx.engine.training.openings import ChatOpening
from mtplx.engine.training.recipe import Recipe
from mtplx.engine.training.trainer import TrainingPlan
from tests.engine.training.predictable import predictable_model

PLAN = TrainingPlan(num_chained=2, batch_pairs=256, epochs=4, highest_rate=1e-2)


class Notes:
    """What a listener is told. Raises KeyboardInterrupt as soon as `until` says so."""

    def __init__(self, until: Callable[[str, int], bool] = lambda stage, times: False) -> None:
        self.stages: list[tuple[str, int]] = []
        self.notes: list[str] = []
        self.lines: list[str] = []
        self._until = until

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        self.stages.append((stage, done))
        self.notes = []

    def advance(self, amount: int, note: str = "") -> None:
        self.notes.append(note)
        if self._until(self.stages[-1][0], len(self.notes)):
            raise KeyboardInterrupt

    def tell(self, line: str) -> None:
        self.lines.append(line)


def recipe(out: Path) -> Recipe:
    return Recipe(out, num_tokens=2500, answer_tokens=64, vocabulary_size=220, plan=PLAN)


@pytest.fixture(scope="module", autouse=True)
def short_messages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChatOpening, "message_tokens", 12)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Notes, Measured]:
    out, notes = tmp_path_factory.mktemp("head") / "head", Notes()
    return out, notes, train_head(predictable_model(), recipe(out), {"command": "ours"}, notes)


def losses(notes: Notes) -> list[float]:
    return [float(note.split()[1]) for note in notes.notes]


@pytest.mark.slow
def test_the_loss_falls_and_a_predictable_model_is_foreseen(trained: tuple[Path, Notes, Measured]) -> None:
    _, notes, measured = trained
    assert losses(notes)[-1] < 0.8 * losses(notes)[0]  # where it begins it knows much already
    assert min(measured.agreement) > 0.6  # by chance it were 1 in 257
    assert measured.agreement[1] >= measured.survival[1] > 0.4
    assert min(measured.expected) > 0.5


@pytest.mark.slow
def test_the_folder_holds_a_head_for_this_model_and_tells_what_was_measured_and_how_it_was_made(
    trained: tuple[Path, Notes, Measured],
) -> None:
    out, _, measured = trained
    config = read_head_config(out)
    assert config.acceptance["agreement"] == list(measured.agreement)
    assert config.provenance["command"] == "ours"
    assert config.provenance["num_tokens"] >= 2500
    head = load_head(out, predictable_model())
    assert head.token_ids is not None
    assert len(head.token_ids) == 220
    tokens = mx.arange(70, 78)[None]  # as after "<assistant>"
    model = predictable_model().model
    hidden = model.model(tokens)
    drafted = head.token_ids[mx.argmax(head.project(head.block(hidden[:, :-1], head.embed(tokens[:, 1:]))), axis=-1)]
    assert np.mean(drafted[0] == np.arange(72, 79)) > 0.6


@pytest.mark.slow
def test_a_run_with_little_room_that_is_interrupted_again_and_again_ends_with_the_same_head(
    trained: tuple[Path, Notes, Measured], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_training, "_CHECKPOINT_S", 0.0)
    out = tmp_path / "head"
    disk_bytes = 2 * 32 * 1500  # not for all rows: the states of the others are computed anew
    short_of_room = replace(recipe(out), disk_bytes=disk_bytes)

    def run(until: Callable[[str, int], bool] = lambda stage, times: False) -> Notes:
        notes = Notes(until)
        train_head(predictable_model(), short_of_room, {"command": "ours"}, notes)
        return notes

    for end in [("texts", 3), ("training", 5), ("training", 9)]:
        with pytest.raises(KeyboardInterrupt):
            run(lambda stage, times, end=end: (stage, times) == end)  # type: ignore[misc]
    notes = run()
    assert notes.stages[0][1] >= 2500
    assert notes.stages[1][1] == 12  # a step that was interrupted is taken again
    assert any("computed anew" in line for line in notes.lines)
    assert (out / "training/states.f16").stat().st_size <= disk_bytes
    for name in ("head.safetensors", "config.json", "training/texts.jsonl"):
        assert (out / name).read_bytes() == (trained[0] / name).read_bytes()


@pytest.mark.slow
def test_a_folder_begun_with_another_seed_is_not_gone_on_with(trained: tuple[Path, Notes, Measured]) -> None:
    other = Recipe(trained[0], num_tokens=2500, answer_tokens=64, plan=TrainingPlan(seed=1))
    with pytest.raises(InvalidRequestError, match="was begun with seed 0, not 1"):
        train_head(predictable_model(), other, {}, Notes())


@pytest.mark.slow
def test_minutes_shorten_the_training_and_data_replaces_what_the_model_would_write(tmp_path: Path) -> None:
    data = tmp_path / "texts.jsonl"
    text = "".join(chr(32 + place % 90) for place in range(200))
    data.write_text("".join(json.dumps({"text": text[shift:]}) + "\n" for shift in range(40)))
    out, notes = tmp_path / "head", Notes()
    brief = Recipe(out, data=data, num_tokens=10**6, minutes=1e-6, vocabulary_size=None, bits=None, plan=PLAN)
    train_head(predictable_model(), brief, {}, notes)
    assert notes.stages == [("texts", 0), ("training", 0), ("training", 8)]
    config = read_head_config(out)
    assert (config.num_tokens, config.quantization) == (None, None)
    assert config.provenance["num_texts"] == 40
