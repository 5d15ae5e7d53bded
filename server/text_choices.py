"""Choices of the completions endpoint: a text, after its prompt if that is to be echoed.

Knows OpenAI's words for it, and the updates of one request. Knows no stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.engine.types import TokenScore, Update
from mtplx.server.logprobs import TextLogprobsWriter, joined
from mtplx.server.replies import ChoiceWriter
from mtplx.server.schemas.replies import Choice, TextChoice, TextLogprobs
from mtplx.server.token_texts import TokenTexts


@dataclass(frozen=True)
class Prompt:
    """What a text goes on from: its tokens, and its text if that is to be echoed."""

    tokens: Sequence[int]
    echo: str | None = None


class TextFormat:
    """A choice is a text, and a chunk of it has the same form."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, prompts: Sequence[Prompt], num_choices: int = 1, texts: TokenTexts | None = None) -> None:
        """Each of the `prompts` has `num_choices` choices; with `texts` log probabilities are told."""
        self._prompts = prompts
        self._num_choices = num_choices
        self._texts = texts

    def writer(self, index: int) -> ChoiceWriter:
        return TextWriter(index, self._prompts[index // self._num_choices], self._texts)

    def text_chunk(self, index: int, text: str) -> Choice:
        return TextChoice(index=index, text=text, finish_reason=None)


class TextWriter:
    """One choice. The echo is told once the prompt has been scored, before all else."""

    num_reasoning_tokens = 0

    def __init__(self, index: int, prompt: Prompt, texts: TokenTexts | None) -> None:
        before = prompt.tokens if prompt.echo is None else ()
        self._index = index
        self._prompt = prompt
        self._echo = prompt.echo  # until it is told
        self._prompt_scores: list[TokenScore] = []
        self._logprobs = None if texts is None else TextLogprobsWriter(texts, before)

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
            parts.append((echo, self._echo_logprobs(echo)))
        if self._logprobs is not None and update.scores:
            parts.append((update.text, self._logprobs.output(update.scores)))
        elif update.text:
            parts.append((update.text, None))
        return parts

    def _echo_logprobs(self, echo: str) -> TextLogprobs | None:
        if self._logprobs is None:
            return None
        return self._logprobs.prompt(self._prompt.tokens, echo, self._prompt_scores)
