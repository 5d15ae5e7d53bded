"""The tokenizer of a GGUF file's vocabulary.

Encoding is done by the `tokenizers` library, decoding by a table of each token's bytes. Knows no file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, normalizers

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.text.abilities import Tool, infer_abilities
from mtplx.engine.text.chat import ChatTemplate
from mtplx.engine.text.pre_tokenizers import composes_characters, keeps_whole_words, pre_tokenizer
from mtplx.engine.text.rendering import render_chat
from mtplx.engine.text.token_bytes import SPACE, SPECIAL, byte_alphabet, bytes_of_tokens
from mtplx.engine.text.tokenizer import ChatMessage
from mtplx.engine.text.vocabulary import BytePairs, SentencePieces, TokenType, Vocabulary


class GgufTokenizer:
    """A Tokenizer. Nothing in it changes after it is built, so any thread may use it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ModelLoadError when the vocabulary contradicts itself."""
        self._starts_with = list(vocabulary.starts_with)
        self._ends_with = list(vocabulary.ends_with)
        self._eos_token_ids = vocabulary.eos_token_ids
        self._filling = {index for index, kind in enumerate(vocabulary.types) if kind == TokenType.UNUSED}
        self._encoder = _encoder(vocabulary)
        self.special_texts: Mapping[str, str] = vocabulary.special_texts
        template = vocabulary.chat_template and ChatTemplate(vocabulary.chat_template, vocabulary.special_texts)
        self._render = template.render if template else None
        self.chat_abilities = infer_abilities(
            vocabulary.chat_template, template.variables if template else (), vocabulary.tokens
        )
        self._bytes = bytes_of_tokens(vocabulary, self.chat_abilities.visible_tokens)
        known = set(vocabulary.tokens)
        self._lost_bytes = bytes(byte for text, byte in byte_alphabet().items() if text not in known)
        self._most_bytes = _most_bytes_of_a_token(vocabulary, self._bytes)
        self._drops_space = isinstance(vocabulary.cut, SentencePieces) and vocabulary.cut.add_space_prefix

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._eos_token_ids

    def vocabulary(self) -> dict[int, str]:
        return {index: text for text, index in self._encoder.get_vocab().items() if index not in self._filling}

    def fewest_tokens(self, text: str) -> int:
        if self._most_bytes is None:
            return 0
        return -(-len(text.encode().translate(None, self._lost_bytes)) // self._most_bytes)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        # A batch is encoded without the interpreter's lock: a long text would hold up every other thread.
        tokens: list[int] = self._encoder.encode_batch([text], add_special_tokens=False)[0].ids
        return self._starts_with + tokens + self._ends_with if add_special_tokens else tokens

    def decode(self, tokens: Sequence[int]) -> str:
        text = b"".join(map(self.bytes_of, tokens)).decode(errors="replace")
        return text.removeprefix(" ") if self._drops_space else text

    def bytes_of(self, token: int) -> bytes:
        return self._bytes[token] if token < len(self._bytes) else b""

    def render_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        add_generation_prompt: bool = True,
    ) -> str:
        return render_chat(
            self._render,
            self.chat_abilities,
            messages,
            tools=tools,
            template_kwargs=template_kwargs,
            continue_final_message=continue_final_message,
            add_generation_prompt=add_generation_prompt,
        )


def _most_bytes_of_a_token(vocabulary: Vocabulary, decoded: Sequence[bytes]) -> int | None:
    """The most bytes of a text that become one token, not counting those that become none.

    None where there is no limit: unknown pieces merge into one token, composed characters get shorter.
    """
    if not isinstance(vocabulary.cut, BytePairs) or composes_characters(vocabulary.cut.pre_tokenizer):
        return None
    spelled = (
        len(token.encode()) for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if kind in SPECIAL
    )
    return max(*spelled, *map(len, decoded))


def _encoder(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    try:
        if isinstance(vocabulary.cut, BytePairs):
            encoder = _byte_pair_encoder(vocabulary.tokens, vocabulary.cut)
        else:
            encoder = _sentence_piece_encoder(vocabulary, vocabulary.cut)
    except Exception as error:  # the library raises nothing more precise
        raise ModelLoadError(f"the model's tokenizer contradicts itself: {error}") from error
    encoder.add_special_tokens(_added(vocabulary, TokenType.CONTROL, special=True))
    encoder.add_tokens(_added(vocabulary, TokenType.USER_DEFINED, special=False))
    return encoder


def _added(vocabulary: Vocabulary, kind: TokenType, *, special: bool) -> list[AddedToken]:
    """The tokens of this type, which a text contains as they are, before it is cut any further."""
    return [
        AddedToken(token, special=special, normalized=False)
        for token, token_type in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if token_type == kind
    ]


def _byte_pair_encoder(tokens: Sequence[str], cut: BytePairs) -> tokenizers.Tokenizer:
    model = models.BPE(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=list(cut.merges),
        ignore_merges=keeps_whole_words(cut.pre_tokenizer),
    )
    encoder = tokenizers.Tokenizer(model)
    encoder.pre_tokenizer = pre_tokenizer(cut.pre_tokenizer)
    if composes_characters(cut.pre_tokenizer):
        encoder.normalizer = normalizers.NFC()
    return encoder


def _sentence_piece_encoder(vocabulary: Vocabulary, cut: SentencePieces) -> tokenizers.Tokenizer:
    tokens = {token: index for index, token in enumerate(vocabulary.tokens)}
    unknown = [
        token
        for token, token_type in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if token_type == TokenType.UNKNOWN
    ]
    model = models.BPE(
        vocab=tokens,
        merges=_merges_by_score(tokens, cut.scores),
        unk_token=unknown[0] if unknown else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    encoder = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(" ", SPACE)
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if cut.add_space_prefix else spaces
    return encoder


def _merges_by_score(tokens: dict[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every pair of tokens that forms a token, the best first."""
    pairs = [
        (token[:middle], token[middle:])
        for token in tokens
        for middle in range(1, len(token))
        if token[:middle] in tokens and token[middle:] in tokens
    ]
    return sorted(pairs, key=lambda pair: -scores[tokens[pair[0] + pair[1]]])
