"""What GGUF's tokenizer metadata means, keys that are left out included."""

from pathlib import Path
from typing import Any

import pytest

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf_header import GgufHeader
from mtplx.engine.models.gguf_vocabulary import read_vocabulary
from mtplx.engine.text.vocabulary import BytePairs, SentencePieces, TokenType, Vocabulary

BYTE_PAIRS = {
    "model": "gpt2",
    "pre": "smollm",
    "tokens": ["<s>", "a", "b", "ab", "<|im_end|>", "<eot>"],
    "token_type": [3, 1, 1, 1, 3, 3],
    "merges": ["a b"],
    "bos_token_id": 0,
    "eos_token_id": 0,
}
PIECES = {"model": "llama", "tokens": ["<s>", "a"], "scores": [0.0, -1.0], "bos_token_id": 0, "eos_token_id": 0}


def read(usual: dict[str, Any], template: str = "", **changes: Any) -> Vocabulary:
    metadata = {f"tokenizer.ggml.{key}": value for key, value in (usual | changes).items() if value is not None}
    return read_vocabulary(GgufHeader(Path("tiny.gguf"), metadata | {"tokenizer.chat_template": template}, {}))


def test_byte_pairs_have_merges_and_a_way_to_cut_words() -> None:
    vocabulary = read(BYTE_PAIRS)
    assert vocabulary.cut == BytePairs((("a", "b"),), "smollm")
    assert vocabulary.types[:2] == (TokenType.CONTROL, TokenType.NORMAL)


def test_sentence_pieces_put_a_space_in_front_unless_told_otherwise() -> None:
    assert read(PIECES).cut == SentencePieces((0.0, -1.0), add_space_prefix=True)
    assert read(PIECES, add_space_prefix=False).cut == SentencePieces((0.0, -1.0), add_space_prefix=False)


@pytest.mark.parametrize(
    ("usual", "changes", "starts_with"),
    [
        (BYTE_PAIRS, {}, ()),
        (BYTE_PAIRS, {"add_bos_token": True}, (0,)),
        (BYTE_PAIRS, {"pre": "llama-bpe"}, (0,)),
        (BYTE_PAIRS, {"pre": "llama-bpe", "add_bos_token": False}, ()),
        (PIECES, {}, (0,)),
        (PIECES, {"add_bos_token": False}, ()),
    ],
)
def test_a_beginning_of_text_is_added_by_default_where_llama_cpp_does(
    usual: dict, changes: dict, starts_with: tuple[int, ...]
) -> None:
    assert read(usual, **changes).starts_with == starts_with


def test_an_end_of_text_is_added_only_if_the_file_says_so() -> None:
    assert read(PIECES).ends_with == ()
    assert read(PIECES, add_eos_token=True).ends_with == (0,)


def test_a_text_ends_with_its_eos_its_end_of_turn_and_what_the_template_ends_turns_with() -> None:
    assert read(BYTE_PAIRS).eos_token_ids == {0}
    assert read(BYTE_PAIRS, eot_token_id=5).eos_token_ids == {0, 5}
    assert read(BYTE_PAIRS, template="{{ message }}<|im_end|>").eos_token_ids == {0, 4}
    assert read(BYTE_PAIRS, template="{{ message }}<end_of_turn>").eos_token_ids == {0}  # no such token


def test_a_template_may_name_the_special_tokens() -> None:
    assert read(BYTE_PAIRS, padding_token_id=4).special_texts == {
        "bos_token": "<s>",
        "eos_token": "<s>",
        "pad_token": "<|im_end|>",
    }


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tokens": None}, "lacks the metadata 'tokenizer.ggml.tokens'"),
        ({"merges": None}, "lacks the metadata 'tokenizer.ggml.merges'"),
        ({"eos_token_id": None}, "lacks the metadata 'tokenizer.ggml.eos_token_id'"),
        ({"add_bos_token": True, "bos_token_id": None}, "lacks the metadata 'tokenizer.ggml.bos_token_id'"),
        ({"model": "t5"}, "tokenizer of the kind 't5'; supported are gpt2 and llama"),
        ({"pre": "viking"}, "by 'viking', which isn't supported; supported are default, gpt-2"),
        ({"token_type": [1, 1]}, "6 tokens but 2 token types"),
    ],
)
def test_what_is_missing_or_unknown_is_named(changes: dict, complaint: str) -> None:
    with pytest.raises(ModelLoadError, match=complaint):
        read(BYTE_PAIRS, **changes)
