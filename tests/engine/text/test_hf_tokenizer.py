"""The tokenizer of a model folder, through the same interface."""

import json
import threading
import time
from pathlib import Path

import pytest
from mlx_lm.utils import load_tokenizer

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
