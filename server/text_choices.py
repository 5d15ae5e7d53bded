"""Choices of the completions endpoint: a text, after its prompt if that is to be echoed.

Knows OpenAI's words for it, and the updates of one request. Knows no stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.engine.text.detokenizer import Detokenizer
from mtplx.engine.text.tokenizer import Tokenizer
from mtplx.engine.types import TokenScore, Update
from mtplx.server.logprobs import TextLogprobsWriter, joined, told
from mtplx.server.replies import ChoiceWriter
from mtplx.server.schemas.replies import Choice, TextChoice, TextLogprobs
from mtplx.server.token_texts import TokenTexts


@dataclass(frozen=True)
class Echo:
    """A prompt that comes before its texts: its text, and its tokens with the text that each made certain."""

    text: str
    tokens: Sequence[int]
    pieces: Sequence[str]

    @classmethod
    def of(cls, prompt: str | None, tokens: Sequence[int], tokenizer: Tokenizer) -> "Echo":
        """The echo of a prompt, given as text or else as tokens alone."""
        detokenizer = Detokenizer(tokenizer.decode)
        pieces = [detokenizer.push(token) for token in tokens]
        pieces[-1] += detokenizer.flush()
        return cls("".join(pieces) if prompt is None else prompt, tokens, pieces)


class TextFormat:
    """A choice is a text, and a chunk of it has the same form."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, echoes: Sequence[Echo] = (), texts: TokenTexts | None = None, num_choices: int = 1) -> None:
        """`echoes` are the prompts, if they are to be told, each before its `num_choices` choices; with `texts` log
        probabilities are told."""
        self._echoes = echoes
        self._texts = texts
        self._num_choices = num_choices

    def writer(self, index: int) -> ChoiceWriter:
        return TextWriter(index, self._echoes[index // self._num_choices] if self._echoes else None, self._texts)

    def text_chunk(self, index: int, text: str) -> Choice:
        return TextChoice(index=index, text=text, finish_reason=None)


class TextWriter:
    """One choice. The echo is told once the prompt has been scored, before all else."""

    num_reasoning_tokens = 0

    def __init__(self, index: int, echo: Echo | None, texts: TokenTexts | None) -> None:
        self._index = index
        self._echo = echo
        self._prompt_scores: list[TokenScore] = []
        self._logprobs = None if texts is None else TextLogprobsWriter(texts)

    def whole(self, updates: Sequence[Update]) -> TextChoice:
        parts = [part for update in updates for part in self._parts(update)]
        end = updates[-1].completion
        assert end is not None
        return TextChoice(
            index=self._index,
            text="".join(text for text, _ in parts),
            logprobs=None if self._logprobs is None else joined([part for _, part in parts if part is not None]),
            finish_reason=end.reason,
            stop_reason=end.stop_reason,
        )

    def chunks(self, update: Update) -> Sequence[Choice | str]:
        chunks: list[Choice | str] = [
            text if logprobs is None else self._chunk(text, logprobs) for text, logprobs in self._parts(update)
        ]
        end = update.completion
        if end is not None:
            closing = TextChoice(index=self._index, text="", finish_reason=end.reason, stop_reason=end.stop_reason)
            chunks.append(closing)
        return chunks

    def _chunk(self, text: str, logprobs: TextLogprobs) -> TextChoice:
        return TextChoice(index=self._index, text=text, logprobs=logprobs, finish_reason=None)

    def _parts(self, update: Update) -> list[tuple[str, TextLogprobs | None]]:
        """What the update adds: the echo if it is time for it, and a text; each with log probabilities if wanted."""
        parts: list[tuple[str, TextLogprobs | None]] = []
        self._prompt_scores += update.prompt_scores
        if self._echo is not None and (update.token_ids or update.completion is not None):
            echo, self._echo = self._echo, None
            parts.append((echo.text, self._echo_logprobs(echo)))
        if self._logprobs is not None and update.scores:
            parts.append((update.text, self._logprobs.output(told(update))))
        elif update.text:
            parts.append((update.text, None))
        return parts

    def _echo_logprobs(self, echo: Echo) -> TextLogprobs | None:
        return None if self._logprobs is None else self._logprobs.prompt(echo.tokens, echo.pieces, self._prompt_scores)
