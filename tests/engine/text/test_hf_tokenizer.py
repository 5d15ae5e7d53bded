"""The tokenizer of a model folder, through the same interface."""

import json
import threading
import time
from pathlib import Path

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import load_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.hf_tokenizer import HfTokenizer
from tests.tiny_models import SPECIAL_TOKENS, token_texts, write_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> HfTokenizer:
    write_tokenizer(tmp_path)
    return HfTokenizer(load_tokenizer(tmp_path))


@pytest.mark.parametrize("text", ["the hat and the cat", "naïve 🦜 你好", " a , b . c", "\n\n  x"])
def test_text_comes_back_from_its_tokens(tokenizer: HfTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_spelled_in_a_text_count_as_such_and_have_no_text(tokenizer: HfTokenizer) -> None:
    tokens = tokenizer.encode("<|im_start|>the<|im_end|>")
    assert [tokens[0], tokens[-1]] == [SPECIAL_TOKENS.index(text) for text in ("<|im_start|>", "<|im_end|>")]
    assert tokenizer.decode(tokens) == "the"


def test_the_vocabulary_has_special_tokens_too(tokenizer: HfTokenizer) -> None:
    assert tokenizer.vocabulary() == dict(enumerate(token_texts()))


def test_the_bytes_of_tokens_join_to_the_text(tokenizer: HfTokenizer) -> None:
    text = "<|im_start|>the naïve 🦜\n<|im_end|>"
    assert b"".join(map(tokenizer.bytes_of, tokenizer.encode(text))).decode() == "the naïve 🦜\n"
    assert tokenizer.bytes_of(10_000) == b""


PIECES = ["<unk>", "<s>", "▁the", "he", "▁", "<0x0A>", "<0xF0>", "é▁", "<tool>"]
SPACES = decoders.Replace("▁", " ")
DECODERS = {
    "llama": decoders.Sequence([SPACES, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "gemma": decoders.Sequence([SPACES, decoders.ByteFallback(), decoders.Fuse()]),
    "metaspace": decoders.Metaspace(),
}


def with_pieces(decoder: decoders.Decoder) -> HfTokenizer:
    """Spelled as SentencePiece does; "<s>" is special, "<tool>" merely added."""
    vocabulary = {piece: index for index, piece in enumerate(PIECES[:-1])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoder
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>")])
    backend.add_tokens([AddedToken(PIECES[-1], normalized=False)])
    return HfTokenizer(TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=backend)))


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_bytes_of_sentence_pieces_have_spaces_and_single_bytes(decoder: str) -> None:
    tokenizer = with_pieces(DECODERS[decoder])
    single = [b"<0x0A>", b"<0xF0>"] if decoder == "metaspace" else [b"\n", b"\xf0"]
    expected = [b"", b"", b" the", b"he", b" ", *single, "é ".encode(), b"<tool>"]
    assert [tokenizer.bytes_of(token) for token in range(len(PIECES))] == expected
    tokens = [3, 1, 2, 7, 5, 8]  # none that the decoder would drop a space of
    assert b"".join(map(tokenizer.bytes_of, tokens)).decode() == tokenizer.decode(tokens)


def test_without_a_known_decoder_bytes_are_those_of_each_token_decoded_alone() -> None:
    tokenizer = with_pieces(decoders.Strip("h", 1, 0))
    assert [tokenizer.bytes_of(token) for token in (1, 3, 8)] == [b"", b"e", b"<tool>"]


def test_a_truncation_that_the_folder_asks_for_cuts_no_prompt(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    file = tmp_path / "tokenizer.json"
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation": truncation}))
    tokenizer = HfTokenizer(load_tokenizer(tmp_path))
    assert tokenizer.decode(tokenizer.encode("longer than two tokens")) == "longer than two tokens"


def test_other_threads_go_on_while_a_long_text_is_encoded(tokenizer: HfTokenizer) -> None:
    text = "the hat and the cat " * 100_000
    thread = threading.Thread(target=tokenizer.encode, args=(text,))
    num_ticks = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        num_ticks += 1
    assert num_ticks > 20  # two or three if the thread keeps the interpreter to itself


def test_the_end_of_text_is_known(tokenizer: HfTokenizer) -> None:
    assert tokenizer.eos_token_ids == {SPECIAL_TOKENS.index("<|im_end|>")}
    assert tokenizer.special_texts["eos_token"] == "<|im_end|>"


def test_a_conversation_is_rendered_by_the_template(tokenizer: HfTokenizer) -> None:
    assert tokenizer.render_chat([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def with_template(folder: Path, template: str | None) -> HfTokenizer:
    write_tokenizer(folder)
    wrapped = load_tokenizer(folder)
    wrapped.chat_template = template
    wrapped.has_chat_template = template is not None
    return HfTokenizer(wrapped)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [(None, "no chat template"), ("{{ raise_exception('roles must alternate') }}", "roles must alternate")],
)
def test_a_conversation_the_model_cannot_take_is_refused(template: str | None, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        with_template(tmp_path, template).render_chat([{"role": "user", "content": "Hi"}])


def test_a_requests_variables_are_no_options_of_the_library(tokenizer: HfTokenizer) -> None:
    for name in ("chat_template", "tokenize", "return_dict"):
        with pytest.raises(InvalidRequestError, match=name):
            tokenizer.render_chat([{"role": "user", "content": "Hi"}], template_kwargs={name: "{{ 1 }}"})


def test_code_of_the_folders_own_renders_where_there_is_some(tmp_path: Path) -> None:
    def render(messages: list[dict[str, str]], **options: object) -> str:
        return f"{messages[0]['content']} {sorted(options)}"

    write_tokenizer(tmp_path)
    wrapped = load_tokenizer(tmp_path)
    tokenizer = HfTokenizer(TokenizerWrapper(wrapped._tokenizer, chat_template=render))
    assert tokenizer.render_chat([{"role": "user", "content": "Hi"}], template_kwargs={"mood": "good"}) == (
        "Hi ['add_generation_prompt', 'enable_thinking', 'mood']"
    )
    assert not tokenizer.chat_abilities.describes_tools


def test_special_tokens_that_mark_calls_and_thoughts_have_a_text(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    wrapped = load_tokenizer(tmp_path)
    wrapped.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "[TOOL_CALLS]", "<other>"]})
    wrapped.chat_template = "{{ tools }}[TOOL_CALLS]"
    tokenizer = HfTokenizer(wrapped)
    tokens = tokenizer.encode("<think>the</think>[TOOL_CALLS]<other><|im_end|>")
    assert tokenizer.decode(tokens) == "<think>the</think>[TOOL_CALLS]"
    assert b"".join(map(tokenizer.bytes_of, tokens)) == b"<think>the</think>[TOOL_CALLS]"
