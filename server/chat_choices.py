"""Choices of the chat endpoint: a message, or chunks that tell its role first and then what is added to it.

Knows OpenAI's words for it, and the updates of one request. Knows no stream.
"""

from collections.abc import Sequence

from mtplx.engine.types import Update
from mtplx.server.logprobs import chat_logprobs, told
from mtplx.server.replies import ChoiceWriter
from mtplx.server.schemas.replies import ChatChoice, ChatChunkChoice, ChatDelta, ChatLogprobs, ChatMessage, Choice
from mtplx.server.token_texts import TokenTexts


class ChatFormat:
    """A choice is a message."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, texts: TokenTexts | None = None) -> None:
        """With `texts`, log probabilities are told."""
        self._texts = texts

    def writer(self, index: int) -> ChoiceWriter:
        return MessageWriter(index, self._texts)

    def text_chunk(self, index: int, text: str) -> Choice:
        return ChatChunkChoice(index=index, delta=ChatDelta(content=text), finish_reason=None)


class MessageWriter:
    """One choice. No chunk comes before the first text, so that the time to the first is that of the text."""

    num_reasoning_tokens = 0

    def __init__(self, index: int, texts: TokenTexts | None) -> None:
        self._index = index
        self._texts = texts
        self._has_begun = False

    def whole(self, updates: Sequence[Update]) -> ChatChoice:
        end = updates[-1].completion
        assert end is not None
        return ChatChoice(
            index=self._index,
            message=ChatMessage(content="".join(update.text for update in updates)),
            logprobs=self._logprobs(updates),
            finish_reason=end.reason,
            stop_reason=end.stop_reason,
        )

    def chunks(self, update: Update) -> Sequence[Choice | str]:
        chunks: list[Choice | str] = []
        end, logprobs = update.completion, self._logprobs([update])
        if not self._has_begun and (update.text or end is not None):
            self._has_begun = True
            chunks.append(self._chunk(ChatDelta(role="assistant", content="")))
        if logprobs is not None and logprobs.content:
            chunks.append(self._chunk(ChatDelta(content=update.text), logprobs))
        elif update.text:
            chunks.append(update.text)
        if end is not None:
            chunks.append(
                ChatChunkChoice(
                    index=self._index, delta=ChatDelta(), finish_reason=end.reason, stop_reason=end.stop_reason
                )
            )
        return chunks

    def _chunk(self, delta: ChatDelta, logprobs: ChatLogprobs | None = None) -> ChatChunkChoice:
        return ChatChunkChoice(index=self._index, delta=delta, logprobs=logprobs, finish_reason=None)

    def _logprobs(self, updates: Sequence[Update]) -> ChatLogprobs | None:
        if self._texts is None:
            return None
        return chat_logprobs([score for update in updates for score, _ in told(update)], self._texts)
