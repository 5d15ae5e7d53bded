"""Prompts of a benchmark: the forms that are read, and what is said of those that are not."""

import json
from collections import Counter
from pathlib import Path

import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.server.bench.prompts import BUILT_IN, Prompt, choose_prompts, read_prompts


def user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_of_spec_benchs_turns_the_first_is_the_prompt(tmp_path: Path) -> None:
    line = {"question_id": 81, "category": "writing", "turns": ["Compose a poem.", "Rewrite it."]}
    [prompt] = read_prompts(written(tmp_path / "question.jsonl", line))
    assert prompt == Prompt("81", "writing", user("Compose a poem."))


def test_a_line_may_have_a_text_or_a_conversation(tmp_path: Path) -> None:
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    lines = ({"id": "greeting", "category": "talk", "prompt": "Hi"}, {"messages": conversation})
    first, second = read_prompts(written(tmp_path / "prompts.jsonl", *lines))
    assert first == Prompt("greeting", "talk", user("Hi"))
    assert second == Prompt("2", "prompts", tuple(conversation))


def test_any_other_file_has_a_prompt_a_line(tmp_path: Path) -> None:
    prompts = read_prompts(written(tmp_path / "prompts.txt", "Say yes.", "", "Say no."))
    assert prompts == [Prompt("1", "prompts", user("Say yes.")), Prompt("3", "prompts", user("Say no."))]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "7",
        "{}",
        '{"prompt": ""}',
        '{"prompt": 7}',
        '{"turns": []}',
        '{"turns": [7]}',
        '{"messages": []}',
        '{"messages": ["Hi"]}',
        '{"messages": [{"role": "user"}]}',
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidRequestError, match="line 2: "):
        read_prompts(written(tmp_path / "prompts.jsonl", {"prompt": "Hi"}, line))


def test_an_id_may_occur_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="line 2: the id 'a' is taken"):
        read_prompts(written(tmp_path / "prompts.jsonl", {"id": "a", "prompt": "Hi"}, {"id": "a", "prompt": "Ho"}))


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no prompts"):
        read_prompts(written(tmp_path / "prompts.txt", "", " "))


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_prompts(tmp_path / "prompts.txt")
    (tmp_path / "prompts.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        read_prompts(tmp_path / "prompts.txt")


def test_the_built_in_set_has_copy_heavy_and_free_prompts() -> None:
    counts = Counter(prompt.category for prompt in read_prompts(BUILT_IN))
    assert counts.keys() == {"copy", "writing", "qa"}
    assert counts["copy"] >= 12


def test_categories_and_their_first_prompts_are_chosen() -> None:
    prompts = [Prompt(f"{category}{number}", category, user("Hi")) for number in (1, 2, 3) for category in "abc"]
    assert [prompt.id for prompt in choose_prompts(prompts, ["c", "a"], 2)] == ["c1", "c2", "a1", "a2"]
    assert [prompt.id for prompt in choose_prompts(prompts, limit=1)] == ["a1", "b1", "c1"]
    assert len(choose_prompts(prompts)) == 9


def test_a_category_that_has_no_prompts_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'b'; there are a"):
        choose_prompts([Prompt("1", "a", user("Hi"))], ["b"])
