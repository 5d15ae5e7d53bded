"""The tokenizer of a GGUF vocabulary cuts text as the tokenizer it was made from."""

import io
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from mtplx.engine.errors import InvalidRequestError, ModelLoadError
from mtplx.engine.models.default_model import default_model_path
from mtplx.engine.models.gguf_header import read_header
from mtplx.engine.models.gguf_vocabulary import read_vocabulary
from mtplx.engine.text.gguf_tokenizer import GgufTokenizer
from mtplx.engine.text.vocabulary import BytePairs, SentencePieces, TokenType, Vocabulary
from tests.tiny_models import CHAT_TEMPLATE, MERGES, SPECIAL_TOKENS, token_texts

START, END = (SPECIAL_TOKENS.index(text) for text in ("<|im_start|>", "<|im_end|>"))
TINY = Vocabulary(
    tokens=(*token_texts(), "<think>"),
    types=(
        *(TokenType.CONTROL if text in SPECIAL_TOKENS else TokenType.NORMAL for text in token_texts()),
        TokenType(4),
    ),
    cut=BytePairs(MERGES, "smollm"),
    starts_with=(),
    ends_with=(),
    eos_token_ids=frozenset({END}),
    special_texts={"eos_token": "<|im_end|>"},
    chat_template=CHAT_TEMPLATE,
)
texts = st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t19the and你🦜é")))


@given(texts)
def test_any_text_comes_back_from_its_tokens(text: str) -> None:
    tokenizer = GgufTokenizer(TINY)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_spelled_in_a_text_count_as_such() -> None:
    tokens = GgufTokenizer(TINY).encode("<|im_start|>the<|im_end|>")
    assert (tokens[0], tokens[-1], len(tokens)) == (START, END, 3)


def test_special_tokens_have_no_text_but_user_defined_ones_do() -> None:
    tokenizer = GgufTokenizer(TINY)
    assert tokenizer.decode(tokenizer.encode("<|im_start|><think>the<|im_end|>")) == "<think>the"


def test_special_tokens_that_mark_calls_have_a_text() -> None:
    template = "{{ tools }}<|im_start|>[TOOL_CALLS]"
    marked = replace(
        TINY,
        tokens=(*TINY.tokens, "[TOOL_CALLS]"),
        types=(*TINY.types, TokenType.CONTROL),
        chat_template=template,
    )
    tokenizer = GgufTokenizer(marked)
    assert tokenizer.decode(tokenizer.encode("[TOOL_CALLS]the<|im_end|>")) == "[TOOL_CALLS]the"
    assert GgufTokenizer(replace(marked, chat_template=CHAT_TEMPLATE)).decode([len(TINY.tokens)]) == ""


def test_tokens_beyond_the_vocabulary_have_no_text() -> None:
    assert GgufTokenizer(TINY).decode([len(TINY.tokens) + 5]) == ""
    assert GgufTokenizer(TINY).bytes_of(len(TINY.tokens) + 5) == b""


@given(texts)
def test_the_bytes_of_tokens_join_to_the_text(text: str) -> None:
    tokenizer = GgufTokenizer(TINY)
    tokens = tokenizer.encode(f"<|im_start|>{text}<|im_end|>")
    assert b"".join(map(tokenizer.bytes_of, tokens)) == text.encode()


def test_filling_is_no_part_of_the_vocabulary() -> None:
    filled = replace(TINY, tokens=(*TINY.tokens, "[PAD1]"), types=(*TINY.types, TokenType.UNUSED))
    assert GgufTokenizer(filled).vocabulary() == dict(enumerate(TINY.tokens))


def test_unfinished_characters_decode_to_one_replacement() -> None:
    tokenizer = GgufTokenizer(TINY)
    assert [tokenizer.decode(tokenizer.encode("🦜")[:count]) for count in range(5)] == ["", *["\ufffd"] * 3, "🦜"]


def test_beginning_and_end_are_added_on_request_only() -> None:
    tokenizer = GgufTokenizer(replace(TINY, starts_with=(START,), ends_with=(END,)))
    plain = tokenizer.encode("the", add_special_tokens=False)
    assert tokenizer.encode("the") == [START, *plain, END]


def test_a_conversation_is_rendered_by_the_template() -> None:
    assert GgufTokenizer(TINY).render_chat([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_without_a_template_a_conversation_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no chat template"):
        GgufTokenizer(replace(TINY, chat_template=None)).render_chat([{"role": "user", "content": "Hi"}])


def test_merges_of_unknown_tokens_fail_when_the_model_is_loaded() -> None:
    with pytest.raises(ModelLoadError, match="tokenizer contradicts itself"):
        GgufTokenizer(replace(TINY, cut=BytePairs((("the", "xyz"),), "smollm")))


def test_threads_may_encode_at_the_same_time() -> None:
    tokenizer = GgufTokenizer(TINY)
    jobs = [f"the {number} and the rest 🦜" * 50 for number in range(8)]
    results: dict[str, list[int]] = {}
    threads = [threading.Thread(target=lambda job=job: results.update({job: tokenizer.encode(job)})) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(tokenizer.decode(results[job]) == job for job in jobs)


NO_MERGES = BytePairs((), "smollm")
LACKING = replace(TINY, tokens=tuple("lost" if token == "a" else token for token in TINY.tokens), cut=NO_MERGES)
COMPOSING = replace(TINY, cut=BytePairs(MERGES, "qwen2"))


@pytest.mark.parametrize("vocabulary", [TINY, LACKING, COMPOSING], ids=["tiny", "lacking a byte", "composing"])
def test_no_text_has_fewer_tokens_than_told_before_it_is_encoded(vocabulary: Vocabulary) -> None:
    tokenizer = GgufTokenizer(vocabulary)

    @given(texts)
    def holds(text: str) -> None:
        assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode(text))

    holds()


def test_a_long_text_is_known_to_have_many_tokens_unless_its_bytes_are_lost_or_composed() -> None:
    text = "a" * 13_000  # the longest token is <|endoftext|>
    assert [GgufTokenizer(each).fewest_tokens(text) for each in (TINY, LACKING, COMPOSING)] == [1000, 0, 0]


def test_other_threads_go_on_while_a_long_text_is_encoded() -> None:
    text = "the hat and the cat " * 100_000
    thread = threading.Thread(target=GgufTokenizer(TINY).encode, args=(text,))
    num_ticks = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        num_ticks += 1
    assert num_ticks > 20  # two or three if the thread keeps the interpreter to itself


SENTENCES = ["the cat sat on the mat and the hat", "der Hund läuft über die Straße", "一只猫 🦜 and 12 birds"]
TRICKY = [
    "the cat",
    " the  cat ",
    "   ",
    "12345",
    "unknown letters: жук 𝄞",
    "line\nbreak\tand tab",
    "läuft🦜über",
    "a▁b",
]


@pytest.fixture(scope="module", params=[True, False], ids=["space in front", "no space in front"])
def trained(request: pytest.FixtureRequest) -> tuple[sentencepiece.SentencePieceProcessor, GgufTokenizer]:
    """A SentencePiece model and our tokenizer from what a converter would write of it."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20),
        model_writer=file,
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        add_dummy_prefix=request.param,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    ids = range(model.vocab_size())
    vocabulary = Vocabulary(
        tokens=tuple(model.id_to_piece(index) for index in ids),
        types=tuple(_type(model, index) for index in ids),
        cut=SentencePieces(tuple(model.get_score(index) for index in ids), add_space_prefix=request.param),
        starts_with=(model.bos_id(),),
        ends_with=(),
        eos_token_ids=frozenset({model.eos_id()}),
        special_texts={},
        chat_template=None,
    )
    return model, GgufTokenizer(vocabulary)


def _type(model: sentencepiece.SentencePieceProcessor, index: int) -> TokenType:
    if model.is_unknown(index):
        return TokenType.UNKNOWN
    if model.is_control(index):
        return TokenType.CONTROL
    return TokenType.BYTE if model.is_byte(index) else TokenType.NORMAL


@pytest.mark.parametrize("text", [*SENTENCES, *TRICKY])
def test_sentence_pieces_are_those_of_the_sentencepiece_library(trained: tuple, text: str) -> None:
    model, tokenizer = trained
    assert tokenizer.encode(text) == [model.bos_id(), *model.encode(text)]


@pytest.mark.parametrize("text", [*SENTENCES, *TRICKY[:-1]])
def test_sentence_pieces_decode_to_the_text(trained: tuple, text: str) -> None:
    _, tokenizer = trained
    assert tokenizer.decode(tokenizer.encode(text)) == text


def default_tokenizer() -> tuple[GgufTokenizer, tokenizers.Tokenizer]:
    """Ours, and one put together as the model's own tokenizer.json describes it."""
    vocabulary = read_vocabulary(read_header(default_model_path()))
    assert isinstance(vocabulary.cut, BytePairs)
    vocab = {token: index for index, token in enumerate(vocabulary.tokens)}
    own = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=list(vocabulary.cut.merges)))
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    own.decoder = tokenizers.decoders.ByteLevel()
    own.add_special_tokens([*vocabulary.tokens[:17]])
    return GgufTokenizer(vocabulary), own


@pytest.mark.slow
def test_default_model_cuts_text_as_its_own_tokenizer_does() -> None:
    ours, own = default_tokenizer()

    def same(text: str) -> None:
        tokens: Sequence[int] = own.encode(text).ids
        assert ours.encode(text) == tokens
        assert ours.decode(tokens) == own.decode(list(tokens))

    for text in [*SENTENCES, *TRICKY, "<|im_start|>user\nHi<|im_end|>\n", "١٢٣ ½ Ⅷ\r\n", "it's I'LL  don't"]:
        same(text)
    given(texts)(same)()


@pytest.mark.slow
def test_default_model_gives_these_tokens() -> None:
    ours, _ = default_tokenizer()
    assert ours.encode("Hello world 123 🦜") == [19556, 905, 216, 33, 34, 35, 15107, 116, 246]
    assert ours.eos_token_ids == {2}
