"""Prefixes outlive the process, within a budget; whatever happened to the files costs rows, never an error."""

import logging
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from mtplx.engine.cache import RowCache
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Rows
from mtplx.engine.prefix.prefix_cache import PrefixCache
from tests.engine.prefix.rows import FULL, ROW_BYTES, WINDOWED, contents, expected, filled
from tests.tiny_models import tiny_model

PLENTY = 1 << 30
TOKEN_BYTES = len(FULL) * ROW_BYTES
TEXT = tuple(range(100, 700))
OTHER = (*TEXT[:300], *range(1000, 1100))
MODEL = "tiny"


def saved(
    folder: Path, *texts: Sequence[int], windows: Sequence[int | None] = FULL, budget: int = PLENTY, salt: str = ""
) -> PrefixCache:
    """What was kept of these texts, and written."""
    prefixes = PrefixCache(PLENTY)
    for text in texts:
        prefixes.bank(text, filled(text, windows), salt)
    prefixes.save(folder, MODEL, budget)
    return prefixes


def loaded(folder: Path, model: str = MODEL, budget: int = PLENTY) -> PrefixCache:
    prefixes = PrefixCache(budget)
    prefixes.load(folder, model)
    return prefixes


def lent(
    prefixes: PrefixCache, text: Sequence[int], windows: Sequence[int | None] = FULL, salt: str = ""
) -> tuple[int, RowCache]:
    """Rows of all of a text."""
    cache = RowCache(windows)
    return prefixes.borrow((*text, 7), cache, salt), cache


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@pytest.mark.parametrize("windows", [FULL, WINDOWED, (8, 8)])
def test_what_was_saved_is_lent_after_a_restart(tmp_path: Path, windows: Sequence[int | None]) -> None:
    before = saved(tmp_path, TEXT, OTHER, TEXT[:400], windows=windows, salt="a")
    after = loaded(tmp_path)
    assert (after.num_bytes, after.num_entries) == (before.num_bytes, before.num_entries)
    for text in (TEXT, OTHER, TEXT[:400]):
        num_rows, cache = lent(after, text, windows, "a")
        assert num_rows == len(text)
        assert contents(cache) == expected(text, windows)
        assert lent(after, text, windows, "b")[0] == 0


def test_recurrent_states_go_to_disk_too(tmp_path: Path) -> None:
    model = tiny_model("qwen3_next")
    target = SequentialTarget(model, model.make_cache)
    cache = target.new_cache()
    target.forward([Rows(cache, TEXT[:20], 0)])
    cache.commit(20)
    prefixes = PrefixCache(PLENTY)
    prefixes.bank(TEXT[:20], cache)
    prefixes.save(tmp_path, MODEL, PLENTY)
    reborn = target.new_cache()
    assert loaded(tmp_path).borrow(TEXT, reborn) == 20
    [ours], [theirs] = (target.forward([Rows(each, TEXT[20:25], 5)]) for each in (reborn, cache))
    assert (ours == theirs).all()


def test_what_was_used_last_is_still_what_goes_last(tmp_path: Path) -> None:
    texts = [tuple(range(start, start + 100)) for start in (1000, 2000, 3000)]
    before = saved(tmp_path, *texts)
    lent(before, texts[0])
    before.save(tmp_path, MODEL, PLENTY)
    after = loaded(tmp_path, budget=300 * TOKEN_BYTES)
    after.bank(range(50), filled(range(50)))
    assert [lent(after, text)[0] for text in texts] == [100, 0, 100]


def test_saving_and_loading_keep_within_their_budgets_what_was_used_last(tmp_path: Path) -> None:
    texts = [tuple(range(start, start + 100)) for start in (1000, 2000, 3000)]
    saved(tmp_path, *texts, budget=200 * TOKEN_BYTES)
    assert [lent(loaded(tmp_path), text)[0] for text in texts] == [0, 100, 100]
    after = loaded(tmp_path, budget=150 * TOKEN_BYTES)
    assert after.num_bytes == 100 * TOKEN_BYTES
    assert lent(after, texts[2])[0] == 100


def test_a_later_save_replaces_an_earlier_one_and_leaves_files_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "prefix-mine.safetensors").write_text("mine")
    saved(tmp_path, TEXT)
    saved(tmp_path, OTHER)
    after = loaded(tmp_path)
    assert (lent(after, TEXT)[0], lent(after, OTHER)[0]) == (300, 400)
    assert sum(path.stat().st_size for path in files(tmp_path)) < 500 * TOKEN_BYTES
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / "prefix-mine.safetensors").read_text() == "mine"


def test_prefixes_of_another_model_are_not_loaded(tmp_path: Path) -> None:
    saved(tmp_path, TEXT)
    assert loaded(tmp_path, model="another").num_entries == 0


def test_where_nothing_was_saved_nothing_is_loaded_nor_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert loaded(tmp_path / "missing").num_entries == 0
    assert caplog.records == []


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, empty, Path.unlink])
def test_a_damaged_file_costs_its_rows_and_those_after_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    assert callable(damage)
    before = saved(tmp_path, TEXT, (1, 2, 3))
    assert before.num_entries == len(files(tmp_path)) == 4
    whole = {path: path.read_bytes() for path in files(tmp_path)}
    num_rows = set()
    for path, content in whole.items():
        caplog.clear()
        damage(path)
        after = loaded(tmp_path)
        [record] = caplog.records
        assert (record.levelno, path.name in record.getMessage()) == (logging.WARNING, True)
        num_rows.add((lent(after, TEXT)[0], lent(after, (1, 2, 3))[0]))
        for text in (TEXT, (1, 2, 3)):
            num_lent, cache = lent(after, text)
            assert contents(cache) == expected(text[:num_lent])
        path.write_bytes(content)
    assert num_rows == {(0, 3), (256, 3), (512, 3), (600, 0)}


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, empty])
def test_a_damaged_index_costs_all_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    assert callable(damage)
    saved(tmp_path, TEXT)
    [index] = tmp_path.glob("*.index")
    damage(index)
    assert loaded(tmp_path).num_entries == 0
    [record] = caplog.records
    assert index.name in record.getMessage()


def test_rows_that_have_lost_the_state_after_them_are_not_kept(tmp_path: Path) -> None:
    saved(tmp_path, TEXT, windows=WINDOWED)
    largest = max(files(tmp_path), key=lambda path: path.stat().st_size)
    states = [path for path in files(tmp_path) if any("state" in name for name in mx.load(str(path)))]
    assert len(states) == 1
    assert largest not in states
    truncate(states[0])
    after = loaded(tmp_path)
    assert (after.num_bytes, after.num_entries) == (0, 0)


def test_a_save_that_fails_is_reported_and_leaves_what_was_saved_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, TEXT)
    write = Path.write_bytes

    def fail(path: Path, content: bytes) -> int:
        write(path, content[:9])
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", fail)
        saved(tmp_path, OTHER)
    assert "no space left" in caplog.text
    assert lent(loaded(tmp_path), TEXT)[0] == 600
    saved(tmp_path, TEXT)
    assert not list(tmp_path.glob("*.partial"))
