"""How a request's updates become the reply, whole or streamed, for both endpoints alike.

Knows the order of chunks, when usage and metrics are told, and what happens when the client goes. Knows no field of
a choice: that is the format's affair.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import fastapi
from starlette.requests import ClientDisconnect

from mtplx.engine.types import Update
from mtplx.server.bridge import ServedModel
from mtplx.server.errors import from_engine
from mtplx.server.reply_plan import ReplyPlan, Texts
from mtplx.server.schemas.replies import Choice, Reply
from mtplx.server.sse import EventStream, event
from mtplx.server.streams import RequestStream
from mtplx.server.usage import metrics, usage

Result = TypeVar("Result")


_SOME_TEXT = "\N{REPLACEMENT CHARACTER} some text"  # that is nowhere else in a chunk
_as_json = json.JSONEncoder(ensure_ascii=False).encode
_SOME_JSON = _as_json(_SOME_TEXT).encode()


class ChoiceWriter(Protocol):
    """Words one choice, whole or in chunks."""

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the tokens worded so far were thoughts."""
        ...

    def whole(self, updates: Sequence[Update]) -> Choice:
        """The choice, from all its updates."""
        ...

    def chunks(self, update: Update) -> Sequence[Choice | str]:
        """What an update adds. A string stands for a chunk that says that text and nothing else."""
        ...


class ReplyFormat(Protocol):
    """How an endpoint words its choices."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def writer(self, index: int) -> ChoiceWriter: ...

    def text_chunk(self, index: int, text: str) -> Choice: ...


@dataclass(frozen=True)
class ReplyWriter:
    """Words the replies to one request: the same id, time and model in all its chunks."""

    format: ReplyFormat
    id: str
    created: int
    model: ServedModel

    def whole(self, texts: Texts) -> Reply:
        told = texts.told
        writers = [self.format.writer(index) for index in range(len(told))]
        choices = [writer.whole(text.updates) for writer, text in zip(writers, told, strict=True)]
        tokens = usage(texts, sum(writer.num_reasoning_tokens for writer in writers))
        return self._reply(self.format.whole_object, choices, usage=tokens, metrics=metrics(texts))

    def chunk(self, *choices: Choice, **extras: Any) -> Reply:
        return self._reply(self.format.chunk_object, choices, **extras)

    def around_text(self, index: int, **extras: Any) -> tuple[bytes, bytes]:
        """What stands before and after the text, a JSON string, in a chunk of it. All these chunks are alike but for
        the text, and to word each anew would take as long as all else about it."""
        before, after = self.chunk(self.format.text_chunk(index, _SOME_TEXT), **extras).json_bytes().split(_SOME_JSON)
        return before, after

    def _reply(self, kind: str, choices: Sequence[Choice], **extras: Any) -> Reply:
        return Reply(
            id=self.id,
            object=kind,
            created=self.created,
            model=self.model.name,
            system_fingerprint=self.model.fingerprint,
            choices=list(choices),
            **extras,
        )


def new_id(reply_format: ReplyFormat) -> str:
    return f"{reply_format.id_prefix}-{secrets.token_hex(12)}"


async def whole_reply(
    request: fastapi.Request, stream: RequestStream, plan: ReplyPlan, writer: ReplyWriter
) -> fastapi.Response:
    """The reply in one piece. Raises the engine's error if a request failed, ClientDisconnect if the client goes."""
    with stream:
        texts = await _while_connected(request, _collect(stream, plan))
    if plan.requests[0].num_logprobs is None:
        body = writer.whole(texts).json_bytes()
    else:  # which may be many, and take seconds to word
        body = await asyncio.to_thread(lambda: writer.whole(texts).json_bytes())
    return fastapi.Response(body, media_type="application/json")


async def streamed_reply(
    request: fastapi.Request,
    stream: RequestStream,
    plan: ReplyPlan,
    writer: ReplyWriter,
    *,
    include_usage: bool,
    keep_alive_s: float,
) -> fastapi.Response:
    """The reply as server-sent events.

    It begins with the first news of the request, so that one that fails before has a status that says so: raises the
    engine's error then, or ClientDisconnect. But after `keep_alive_s` seconds without news (0: never) it begins all
    the same, to be kept alive, and an error can only be its last event.
    """
    with ExitStack() as until_begun:
        until_begun.enter_context(stream)
        try:
            async with asyncio.timeout(keep_alive_s or None):
                first = await _while_connected(request, stream.first())
        except TimeoutError:
            pass
        else:
            if first.completion is not None and first.completion.error is not None:
                raise first.completion.error
        until_begun.pop_all()
    return EventStream(_events(stream, plan, writer, include_usage), stream, keep_alive_s=keep_alive_s)


async def _while_connected(request: fastapi.Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` gives. Gives it up and raises ClientDisconnect when the client goes."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_disconnect(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        leaving.cancel()
    if not working.done():
        raise ClientDisconnect
    return working.result()


async def _collect(stream: RequestStream, plan: ReplyPlan) -> Texts:
    """All that comes. Raises the engine's error as soon as a request fails."""
    texts = Texts(plan, keeps_updates=True)
    async for update in stream:
        if update.completion is not None and update.completion.error is not None:
            raise update.completion.error
        texts.add(update)
    return texts


async def _until_disconnect(request: fastapi.Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _events(
    stream: RequestStream, plan: ReplyPlan, writer: ReplyWriter, include_usage: bool
) -> AsyncIterator[bytes]:
    """Chunks as updates come. The last that has a choice tells the metrics, unless one with the usage follows it."""
    extras = {"usage": None} if include_usage else {}
    texts = Texts(plan, keeps_updates=False)
    writers = [writer.format.writer(index) for index in range(len(plan.requests))]
    around_text = [writer.around_text(index, **extras) for index in range(len(writers))]
    async for update in stream:
        if update.completion is not None and update.completion.error is not None:
            yield event(json.dumps(from_engine(update.completion.error).body).encode())
            return
        index = texts.add(update)
        for chunk in writers[index].chunks(update):
            if isinstance(chunk, str):
                before, after = around_text[index]
                yield event(before + _as_json(chunk).encode() + after)
            elif chunk.finish_reason is not None and texts.are_complete and not include_usage:
                yield event(writer.chunk(chunk, metrics=metrics(texts)).json_bytes())
            else:
                yield event(writer.chunk(chunk, **extras).json_bytes())
    if include_usage:
        tokens = usage(texts, sum(each.num_reasoning_tokens for each in writers))
        yield event(writer.chunk(usage=tokens, metrics=metrics(texts)).json_bytes())
    yield event(b"[DONE]")
