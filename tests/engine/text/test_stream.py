"""The text of a choice goes on where its prompt ends, of which only the last few tokens are looked at."""

from collections.abc import Sequence

from mtplx.engine.text.stream import TextStream


def decode(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def test_a_character_begun_in_the_prompt_comes_out_whole() -> None:
    *begun, last = "🦜".encode()
    stream = TextStream(decode, [*b"a parrot: ", *begun], stops=())
    assert stream.push(last) == ("🦜", None)


def test_a_long_prompt_is_not_decoded_with_every_token() -> None:
    lengths = []

    def watched(tokens: Sequence[int]) -> str:
        lengths.append(len(tokens))
        return decode(tokens)

    stream = TextStream(watched, b"long ago " * 100, stops=())
    assert "".join(stream.push(token)[0] for token in b"there was") == "there was"
    assert max(lengths) <= 9
