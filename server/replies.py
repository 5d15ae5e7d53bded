"""How a request's updates become the reply, whole or streamed, for both endpoints alike.

Knows the order of chunks, when usage and metrics are told, and what happens when the client goes. Knows no field of
a choice: that is the format's affair.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import fastapi
from starlette.requests import ClientDisconnect

from mtplx.engine.types import Completion, FinishReason
from mtplx.server.bridge import ServedModel
from mtplx.server.errors import from_engine
from mtplx.server.schemas.replies import Choice, Metrics, Reply, SpeculativeDecoding, Usage
from mtplx.server.sse import EventStream, event
from mtplx.server.streams import RequestStream

Result = TypeVar("Result")


_SOME_TEXT = "\N{REPLACEMENT CHARACTER} some text"  # that is nowhere else in a chunk
_SOME_JSON = json.dumps(_SOME_TEXT, ensure_ascii=False).encode()


class ReplyFormat(Protocol):
    """How an endpoint words its choices."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def whole(self, text: str, reason: FinishReason) -> Choice: ...

    def opening(self) -> Sequence[Choice]:
        """Choices of the chunks that come before the first text."""
        ...

    def piece(self, text: str) -> Choice: ...

    def closing(self, reason: FinishReason) -> Choice: ...


@dataclass(frozen=True)
class ReplyWriter:
    """Words the replies to one request: the same id, time and model in all its chunks."""

    format: ReplyFormat
    id: str
    created: int
    model: ServedModel

    def whole(self, text: str, completion: Completion) -> Reply:
        choice = self.format.whole(text, completion.reason)
        return self._reply(self.format.whole_object, [choice], usage=Usage.of(completion), metrics=_metrics(completion))

    def chunk(self, *choices: Choice, **extras: Any) -> Reply:
        return self._reply(self.format.chunk_object, choices, **extras)

    def around_text(self, **extras: Any) -> tuple[bytes, bytes]:
        """What stands before and after the text, a JSON string, in a chunk of it. All these chunks are alike but for
        the text, and to word each anew would take as long as all else about it."""
        before, after = self.chunk(self.format.piece(_SOME_TEXT), **extras).json_bytes().split(_SOME_JSON)
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


async def whole_reply(request: fastapi.Request, stream: RequestStream, writer: ReplyWriter) -> fastapi.Response:
    """The reply in one piece. Raises the engine's error if the request failed, ClientDisconnect if the client goes."""
    with stream:
        text, completion = await _while_connected(request, _collect(stream))
    if completion.error is not None:
        raise completion.error
    return fastapi.Response(writer.whole(text, completion).json_bytes(), media_type="application/json")


async def streamed_reply(
    request: fastapi.Request,
    stream: RequestStream,
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
    return EventStream(_events(stream, writer, include_usage), stream, keep_alive_s=keep_alive_s)


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


async def _collect(stream: RequestStream) -> tuple[str, Completion]:
    text = ""
    async for update in stream:
        text += update.text
        completion = update.completion
    assert completion is not None
    return text, completion


async def _until_disconnect(request: fastapi.Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _events(stream: RequestStream, writer: ReplyWriter, include_usage: bool) -> AsyncIterator[bytes]:
    """No chunk is sent before the first text, so that a client's time to the first chunk is that of the first text."""
    no_usage = {"usage": None} if include_usage else {}
    opening = writer.format.opening()
    before, after = writer.around_text(**no_usage)
    completion = None
    async for update in stream:
        completion = update.completion
        if update.text:
            for choice in opening:
                yield event(writer.chunk(choice, **no_usage).json_bytes())
            opening = ()
            yield event(before + json.dumps(update.text, ensure_ascii=False).encode() + after)
    assert completion is not None
    if completion.error is not None:
        yield event(json.dumps(from_engine(completion.error).body).encode())
        return
    for choice in opening:
        yield event(writer.chunk(choice, **no_usage).json_bytes())
    for chunk in _last_chunks(writer, completion, include_usage):
        yield event(chunk.json_bytes())
    yield event(b"[DONE]")


def _last_chunks(writer: ReplyWriter, completion: Completion, include_usage: bool) -> Iterator[Reply]:
    closing = writer.format.closing(completion.reason)
    if include_usage:
        yield writer.chunk(closing, usage=None)
        yield writer.chunk(usage=Usage.of(completion), metrics=_metrics(completion))
    else:
        yield writer.chunk(closing, metrics=_metrics(completion))


def _metrics(completion: Completion) -> Metrics:
    return Metrics(speculative_decoding=SpeculativeDecoding.of(completion.speculation))
