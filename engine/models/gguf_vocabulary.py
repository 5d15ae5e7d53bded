"""A GGUF file's tokenizer metadata as a vocabulary. Knows GGUF's keys and their defaults (those of llama.cpp)."""

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf_header import GgufHeader
from mtplx.engine.text.pre_tokenizers import EXPRESSIONS, keeps_whole_words
from mtplx.engine.text.vocabulary import BytePairs, SentencePieces, TokenType, Vocabulary

PREFIX = "tokenizer.ggml."
# Files don't always say what ends a turn; a chat template that writes one of these shows it.
ENDS_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|eot|>", "<end_of_turn>")


def read_vocabulary(header: GgufHeader) -> Vocabulary:
    """The vocabulary of the file. Raises ModelLoadError when parts are missing or of a kind not supported."""
    tokens = tuple(header.require_list(PREFIX + "tokens", str))
    types = _types(header, len(tokens))
    cut = _cut(header)
    template = header.get("tokenizer.chat_template", "") or None
    always_begins = not isinstance(cut, BytePairs) or keeps_whole_words(cut.pre_tokenizer)
    return Vocabulary(
        tokens=tokens,
        types=types,
        cut=cut,
        starts_with=_added(header, "bos", default=always_begins),
        ends_with=_added(header, "eos", default=False),
        eos_token_ids=_eos_token_ids(header, tokens, template),
        special_texts=_special_texts(header, tokens),
        chat_template=template,
    )


def _types(header: GgufHeader, num_tokens: int) -> tuple[TokenType, ...]:
    if PREFIX + "token_type" not in header.metadata:
        return (TokenType.NORMAL,) * num_tokens
    types = tuple(map(TokenType, header.require_list(PREFIX + "token_type", int)))
    if len(types) != num_tokens:
        raise ModelLoadError(f"{header.path} gives {num_tokens} tokens but {len(types)} token types; convert it again")
    return types


def _cut(header: GgufHeader) -> BytePairs | SentencePieces:
    match header.require(PREFIX + "model", str):
        case "gpt2":
            return _byte_pairs(header)
        case "llama":
            scores = header.require_list(PREFIX + "scores", float)
            return SentencePieces(tuple(scores), header.get(PREFIX + "add_space_prefix", True))
        case model:
            raise ModelLoadError(f"{header.path} has a tokenizer of the kind '{model}'; supported are gpt2 and llama")


def _byte_pairs(header: GgufHeader) -> BytePairs:
    name = header.get(PREFIX + "pre", "default")
    if name not in EXPRESSIONS:
        raise ModelLoadError(
            f"{header.path} cuts text into words by '{name}', which isn't supported; supported are "
            + ", ".join(EXPRESSIONS)
        )
    merges = [merge.split(" ") for merge in header.require_list(PREFIX + "merges", str)]
    return BytePairs(tuple((left, right) for left, right in merges), name)


def _added(header: GgufHeader, name: str, *, default: bool) -> tuple[int, ...]:
    if not header.get(f"{PREFIX}add_{name}_token", default):
        return ()
    return (header.require(f"{PREFIX}{name}_token_id", int),)


def _eos_token_ids(header: GgufHeader, tokens: tuple[str, ...], template: str | None) -> frozenset[int]:
    named = {header.require(PREFIX + "eos_token_id", int), header.get(PREFIX + "eot_token_id", -1)}
    written = {tokens.index(text) for text in ENDS_OF_TURN if template and text in template and text in tokens}
    return frozenset(named | written) - {-1}


def _special_texts(header: GgufHeader, tokens: tuple[str, ...]) -> dict[str, str]:
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {text: header.get(f"{PREFIX}{key}_token_id", -1) for text, key in keys.items()}
    return {text: tokens[index] for text, index in ids.items() if 0 <= index < len(tokens)}
