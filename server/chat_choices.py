"""Choices of the chat endpoint: a message, or chunks that tell its role first and then what is added to it.

Knows OpenAI's words for it, and the updates of one request. The parser knows what in a text is said, thought or
called.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.engine.text.abilities import ChatAbilities
from mtplx.engine.types import Completion, Update
from mtplx.server.logprobs import chat_logprobs
from mtplx.server.messages.parser import MessageParser
from mtplx.server.messages.parts import ContentText, Part, ReasoningText, ToolArguments, ToolCallOpened
from mtplx.server.replies import ChoiceWriter
from mtplx.server.schemas.replies import (
    CalledFunction,
    CalledTool,
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Choice,
    ChoiceEnd,
    FunctionDelta,
    ToolCallDelta,
)
from mtplx.server.schemas.tool_choice import ToolUse
from mtplx.server.token_texts import TokenTexts


@dataclass(frozen=True)
class Reading:
    """How the texts of a request are read: what the model can, which tools it was offered, and whether the prompt ends
    within a thought."""

    abilities: ChatAbilities
    use: ToolUse
    is_thinking: bool

    def parser(self) -> MessageParser:
        return MessageParser(
            self.abilities,
            self.use.offered,
            is_thinking=self.is_thinking,
            most_calls=self.use.most_calls,
            must_call=self.use.must_call,
        )


class ChatFormat:
    """A choice is a message."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, reading: Reading, texts: TokenTexts | None = None) -> None:
        """With `texts`, log probabilities are told."""
        self._reading = reading
        self._texts = texts

    def writer(self, index: int) -> ChoiceWriter:
        return MessageWriter(index, self._reading, self._texts)

    def text_chunk(self, index: int, text: str) -> Choice:
        return ChatChunkChoice(index=index, delta=ChatDelta(content=text), finish_reason=None)


class MessageWriter:
    """One choice. No chunk comes before the first text, so that the time to the first is that of the text."""

    def __init__(self, index: int, reading: Reading, texts: TokenTexts | None) -> None:
        self.num_reasoning_tokens = 0
        self._index = index
        self._use = reading.use
        self._parser = reading.parser()
        self._texts = texts
        self._has_begun = False

    def whole(self, updates: Sequence[Update]) -> ChatChoice:
        parts = [part for update in updates for part in self._parts(update)]
        end = updates[-1].completion
        assert end is not None
        return ChatChoice(
            index=self._index,
            message=_message(parts),
            logprobs=self._logprobs(updates),
            finish_reason=self._reason(end),
            stop_reason=end.stop_reason,
        )

    def chunks(self, update: Update) -> Sequence[Choice | str]:
        parts, logprobs, end = self._parts(update), self._logprobs([update]), update.completion
        chunks: list[Choice | str] = []
        is_scored = logprobs is not None and bool(logprobs.content)
        if not self._has_begun and (parts or is_scored or end is not None):
            self._has_begun = True
            chunks.append(self._chunk(ChatDelta(role="assistant", content="")))
        if is_scored:
            first = _delta(parts.pop(0)) if parts else ChatDelta()
            chunks.append(self._chunk(first, logprobs))
        chunks += [part.text if isinstance(part, ContentText) else self._chunk(_delta(part)) for part in parts]
        if end is not None:
            closing = ChatChunkChoice(
                index=self._index, delta=ChatDelta(), finish_reason=self._reason(end), stop_reason=end.stop_reason
            )
            chunks.append(closing)
        return chunks

    def _parts(self, update: Update) -> list[Part]:
        parts: list[Part] = []
        # Token by token while it may think, so that what counts as a thought does not depend on what was drafted.
        for piece in update.pieces if self._parser.may_think else (update.text,):
            self.num_reasoning_tokens += self._parser.is_thinking
            parts += self._parser.push(piece)
        return parts if update.completion is None else parts + self._parser.finish()

    def _reason(self, end: Completion) -> ChoiceEnd:
        """A message that calls tools ends for that, unless a stop string cuts a call short, and not, as OpenAI has it,
        where the request named the one."""
        calls = self._parser.num_calls and not self._use.is_named and not self._parser.is_within_call
        return "tool_calls" if end.reason == "stop" and calls else end.reason

    def _chunk(self, delta: ChatDelta, logprobs: ChatLogprobs | None = None) -> ChatChunkChoice:
        return ChatChunkChoice(index=self._index, delta=delta, logprobs=logprobs, finish_reason=None)

    def _logprobs(self, updates: Sequence[Update]) -> ChatLogprobs | None:
        return None if self._texts is None else chat_logprobs(updates, self._texts)


def _delta(part: Part) -> ChatDelta:
    match part:
        case ContentText():
            return ChatDelta(content=part.text)
        case ReasoningText():
            return ChatDelta(reasoning_content=part.text)
        case ToolCallOpened():
            call = ToolCallDelta(index=part.index, id=part.id, type="function", function=FunctionDelta(name=part.name))
        case ToolArguments():
            call = ToolCallDelta(index=part.index, function=FunctionDelta(arguments=part.text))
    return ChatDelta(tool_calls=[call])


def _message(parts: Sequence[Part]) -> ChatMessage:
    """All parts together. A message that only calls tools says nothing."""
    said = "".join(part.text for part in parts if isinstance(part, ContentText))
    thought = "".join(part.text for part in parts if isinstance(part, ReasoningText))
    calls = [
        CalledTool(id=call.id, function=CalledFunction(name=call.name, arguments=_arguments(parts, call.index)))
        for call in parts
        if isinstance(call, ToolCallOpened)
    ]
    return ChatMessage(
        content=said if said or not calls else None, reasoning_content=thought or None, tool_calls=calls or None
    )


def _arguments(parts: Sequence[Part], index: int) -> str:
    return "".join(part.text for part in parts if isinstance(part, ToolArguments) and part.index == index)
