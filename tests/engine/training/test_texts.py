"""Texts and their states outlive the process that wrote them, up to where it was killed."""

from pathlib import Path

import numpy as np
import pytest

from mtplx.engine.errors import EngineError
from mtplx.engine.training.states import StateFile
from mtplx.engine.training.texts import Text, TextFile

TEXTS = [Text((1, 2, 3, 4), 2), Text((), 0), Text((5, 6, 7), 1)]


def states(text: Text) -> np.ndarray:
    return np.full((text.num_rows, 4), text.num_rows, dtype=np.float16)


def test_texts_are_read_again_and_more_follow(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    TextFile(path).append(TEXTS[:2])
    again = TextFile(path)
    assert again.texts == TEXTS[:2]
    again.append(TEXTS[2:])
    assert TextFile(path).texts == TEXTS
    assert TextFile(path).num_tokens == 7


def test_a_line_that_was_never_finished_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    TextFile(path).append(TEXTS)
    path.write_bytes(path.read_bytes()[:-3])
    again = TextFile(path)
    assert again.texts == TEXTS[:2]
    again.append(TEXTS[2:])
    assert TextFile(path).texts == TEXTS


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("{}\n")
    with pytest.raises(EngineError, match="is damaged"):
        TextFile(path)


def test_states_are_read_again_as_far_as_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "states.f16"
    file = StateFile(path, [], 4, 10**6)
    assert all(file.append(states(text)) for text in TEXTS)
    path.write_bytes(path.read_bytes()[:-2])
    again = StateFile(path, TEXTS, 4, 10**6)
    assert again.num_texts == 2
    assert again.append(states(TEXTS[2]))
    assert [again.read(number).tolist() for number in range(3)] == [states(text).tolist() for text in TEXTS]


def test_states_of_texts_that_were_lost_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "states.f16"
    file = StateFile(path, [], 4, 10**6)
    for text in TEXTS:
        file.append(states(text))
    again = StateFile(path, TEXTS[:1], 4, 10**6)
    assert again.num_texts == 1
    assert path.stat().st_size == 3 * 4 * 2


def test_once_the_budget_is_full_nothing_more_is_kept(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "states.f16", [], 4, 2 * 4 * 4)
    assert [file.append(states(text)) for text in (TEXTS[0], TEXTS[0], TEXTS[2])] == [True, False, False]
    assert file.num_texts == 1
