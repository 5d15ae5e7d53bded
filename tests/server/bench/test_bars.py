"""The rows that say whether speculation pays."""

import json
from pathlib import Path

import pytest

from mtplx.server.bench.cells import Cell
from tests.bench import bars
from tests.bench.categories import category_rows
from tests.bench.row import Row, finish
from tests.server.bench.runs import run

BAR = bars.Bar("copy", built_in=True, must=2.0, num_repeats=1)
PLAIN = bars.AUTO.plain()


def last_row(*times_s: tuple[float, float]) -> Row:
    """The row that is judged, of prompts that take these times with plain decoding and with auto."""
    runs = []
    for number, (plain_s, auto_s) in enumerate(times_s):
        runs += [run(PLAIN, plain_s, prompt=str(number)), run(bars.AUTO, auto_s, prompt=str(number))]
    return bars.bar_rows(BAR, runs)[-1]


def test_a_bar_is_over_the_ratio_of_total_times() -> None:
    row = last_row((5.0, 2.0), (1.0, 1.0))
    assert (row.value, row.must, row.ok) == (2.0, 2.0, True)
    assert last_row((5.0, 2.0), (1.0, 1.1)).ok is False


@pytest.mark.parametrize(("temperature", "enough"), [(0.0, [True, False, True]), (0.7, [None, None, True])])
def test_the_mean_over_categories_is_of_their_speedups_whatever_their_times(temperature, enough) -> None:
    cell = Cell("auto", "auto", temperature)
    times_s = [("qa", 1.8, 1.0), ("rag", 100.0, 100.0)]
    runs = [
        run(each, decode_s, category=category, prompt=category)
        for category, plain_s, auto_s in times_s
        for each, decode_s in ((cell.plain(), plain_s), (cell, auto_s))
    ]
    rows = category_rows(runs, cell)
    assert [row.value for row in rows] == pytest.approx([1.8, 1.0, 1.4])
    assert [row.ok for row in rows] == enough


def test_one_different_text_is_too_many() -> None:
    same = (run(bars.AUTO), run(PLAIN))
    other = (run(bars.AUTO, tokens=(9,)), run(PLAIN))
    assert bars.exact_row("texts", [same, same]).ok is True
    assert (bars.exact_row("texts", [same, other]).value, bars.exact_row("texts", [same, other]).ok) == (50, False)


def test_rows_are_written_and_one_that_falls_short_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSON", str(tmp_path / "rows.json"))
    good, bad = Row("good", 2.0, "x", 1.0), Row("bad", 2.0, "x", 3.0)
    assert finish([good]) == 0
    assert finish([good, bad]) == 1
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written[1] == {"name": "bad", "value": 2.0, "unit": "x", "must": 3.0, "at_most": False, "ok": False}


@pytest.mark.parametrize("path", ["", "/none/question.jsonl"])
def test_without_the_questions_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    monkeypatch.setenv("SPEC_BENCH", path)
    assert bars.main() == 2
    assert capsys.readouterr().err
