"""Asking for the text between two others, in the spelling that a vocabulary has."""

import pytest

from mtplx.engine.text.fill_in import FillIn
from tests.fakes import ByteTokenizer


class SpelledTokenizer(ByteTokenizer):
    """Has special tokens with these spellings, from 300 on."""

    def __init__(self, *spellings: str) -> None:
        super().__init__()
        self._special = dict(enumerate(spellings, start=300))

    def vocabulary(self) -> dict[int, str]:
        return {**super().vocabulary(), **self._special}


@pytest.mark.parametrize(
    "spellings",
    [("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")],
)
def test_the_parts_stand_behind_their_marks_and_the_middle_is_asked_for_last(spellings: tuple[str, ...]) -> None:
    fill_in = FillIn.of(SpelledTokenizer(*spellings))
    assert fill_in is not None
    assert fill_in.prompt([1, 2], [3]) == [300, 1, 2, 301, 3, 302]


def test_a_vocabulary_with_some_of_the_marks_cannot_do_it() -> None:
    assert FillIn.of(SpelledTokenizer("<fim_prefix>", "<fim_middle>")) is None
