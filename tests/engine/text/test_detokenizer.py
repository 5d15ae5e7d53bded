"""Text comes out as it becomes certain, whole characters only, and adds up to the text of all tokens."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.text.detokenizer import Detokenizer

SPECIAL = 256


def decode_bytes(tokens: Sequence[int]) -> str:
    """Each token a byte; numbers from 256 on are special tokens without a text."""
    return bytes(token for token in tokens if token < SPECIAL).decode(errors="replace")


def pieces(tokens: Sequence[int], prompt_tail: Sequence[int] = (), decode=decode_bytes) -> list[str]:
    detokenizer = Detokenizer(decode, prompt_tail)
    return [*(detokenizer.push(token) for token in tokens), detokenizer.flush()]


texts = st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("é你🦜👩\u200d👧\ufffd ")))
byte_runs = st.lists(st.integers(0, 255), max_size=40)


@given(texts)
def test_pieces_add_up_to_the_text(text: str) -> None:
    assert "".join(pieces(list(text.encode()))) == text


@given(texts)
def test_no_piece_of_a_whole_text_holds_half_a_character(text: str) -> None:
    text = text.replace("\ufffd", "")
    assert all("\ufffd" not in piece for piece in pieces(list(text.encode())))


@given(byte_runs)
def test_pieces_of_any_bytes_add_up_to_their_text(tokens: list[int]) -> None:
    assert "".join(pieces(tokens)) == decode_bytes(tokens)


@given(st.lists(st.one_of(st.just(SPECIAL), st.integers(0, 255)), max_size=60))
def test_special_tokens_in_between_change_nothing(tokens: list[int]) -> None:
    assert "".join(pieces(tokens)) == decode_bytes(tokens)


@given(texts, texts)
def test_the_prompt_never_comes_out(prompt: str, text: str) -> None:
    assert "".join(pieces(list(text.encode()), list(prompt.encode()))) == text


@pytest.mark.parametrize("character", ["é", "你", "🦜"])
def test_a_character_comes_out_with_its_last_byte(character: str) -> None:
    *first, last = pieces(list(character.encode()))[:-1]
    assert (first, last) == ([""] * len(first), character)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_begun_in_the_prompt_comes_out_whole(cut: int) -> None:
    parrot = list("🦜".encode())
    assert "".join(pieces([*parrot[cut:], ord("!")], [ord("a"), *parrot[:cut]])) == "🦜!"


def test_text_before_an_unfinished_character_is_not_held_back() -> None:
    def decode(tokens: Sequence[int]) -> str:
        return b"".join([b"so \xf0\x9f", b"\xa6\x9c!"][token] for token in tokens).decode(errors="replace")

    assert pieces([0, 1], decode=decode) == ["so ", "🦜!", ""]


def test_flush_shows_what_never_became_a_character() -> None:
    assert pieces([ord("a"), 0xF0, 0x9F]) == ["a", "", "", "\ufffd"]


def test_bytes_that_can_begin_no_character_come_out_before_the_end() -> None:
    assert "".join(pieces([0xFF] * 50)[:-1]) == "\ufffd" * 47


def decode_runs(tokens: Sequence[int]) -> str:
    """As SentencePiece's byte fallback in the tokenizers library: one wrong byte spoils all the bytes in its row."""
    try:
        return bytes(tokens).decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(tokens)


@given(texts)
def test_a_decoder_that_takes_finished_characters_back_meanwhile_changes_nothing(text: str) -> None:
    assert "".join(pieces(list(text.encode()), decode=decode_runs)) == text


def test_such_a_decoder_shows_an_unfinished_character_once() -> None:
    assert pieces(list("🦜🦜".encode())[:-1], decode=decode_runs)[3:] == ["🦜", "", "", "", "\ufffd"]


def decode_words(tokens: Sequence[int]) -> str:
    """As SentencePiece does: a text's first space is dropped."""
    return "".join(["", " Hello", " world", " ", ",", "s"][token] for token in tokens).removeprefix(" ")


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_only_the_first_space_of_the_whole_text_is_dropped(tokens: list[int], prompt: list[int]) -> None:
    expected = decode_words([*prompt, *tokens]).removeprefix(decode_words(prompt))
    assert "".join(pieces(tokens, prompt, decode=decode_words)) == expected


def test_cost_per_token_does_not_grow_with_the_text() -> None:
    longest = 0

    def decode(tokens: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return decode_bytes(tokens)

    text = list("naïve 🦜 ".encode() * 50)
    pieces([*text, *[0xFF] * 300, *text, *[SPECIAL] * 300, *text], decode=decode)
    assert longest <= 24
