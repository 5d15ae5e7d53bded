"""What `--data` may be."""

import json
from pathlib import Path

import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.training.data import Conversation, PlainText, read_data

ASKED = {"role": "user", "content": "Why?"}
ANSWERED = {"role": "assistant", "content": "So."}


def test_a_file_of_lines_may_hold_texts_prompts_and_chats(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = [{"text": "Once."}, {"prompt": "Why?"}, {"messages": [ASKED, ANSWERED, ASKED, ANSWERED]}]
    path.write_text("\n\n".join(map(json.dumps, lines)))
    assert read_data(path) == [
        PlainText("Once."),
        Conversation((ASKED,)),
        Conversation((ASKED, ANSWERED, ASKED)),
    ]


def test_any_other_file_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("Once.\nTwice.\n")
    assert read_data(path) == [PlainText("Once.\nTwice.\n")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "there is nothing in the file"),
        ('{"text": "a"}\n{', "line 2: "),
        ("[]", "line 1: expected 'text' or 'prompt' with a text"),
        ('{"prompt": " "}', "line 1: expected"),
        ('{"messages": [{"role": "user"}]}', "line 1: expected"),
        (json.dumps({"messages": [ANSWERED]}), "line 1: no message is the user's"),
    ],
)
def test_a_file_that_is_none_of_this_is_refused_with_its_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidRequestError, match=reason):
        read_data(path)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_data(tmp_path / "nowhere.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        read_data(tmp_path / "bytes.txt")
