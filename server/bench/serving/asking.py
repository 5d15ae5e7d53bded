"""One streamed chat completion as its client sees it. Knows HTTP, server-sent events and the clock; judges nothing."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import httpx

CHAT_PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Block:
    """Bytes of a reply's body as they came, and when, in seconds of the performance counter."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class Answer:
    """What became of one request. Times are in seconds of the performance counter.

    `chunks_s` has the time of each chunk that brought text. A chunk may hold several tokens, and which ones no server
    tells; their number over the whole answer is what `usage` says, or that of the chunks where a server has no usage.
    `error` is None unless the request failed; what came before then is told all the same.
    """

    sent_s: float
    ended_s: float
    chunks_s: tuple[float, ...] = ()
    text: str = ""
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    error: str | None = None

    @property
    def first_text_s(self) -> float:
        """Seconds until the first text."""
        return self.chunks_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds that each chunk came after the one before it."""
        return [after - before for before, after in pairwise(self.chunks_s)]


async def ask(client: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> Answer:
    """Stream the answer to a chat completion's body from the server at `url`."""
    sent_s = time.perf_counter()
    blocks: list[Block] = []
    error = await receive(client, url, body, blocks)
    return read_answer(sent_s, time.perf_counter(), blocks, error)


async def receive(client: httpx.AsyncClient, url: str, body: Mapping[str, Any], blocks: list[Block]) -> str | None:
    """Append what is streamed to `blocks` as it comes; what went wrong, if anything did."""
    try:
        async with client.stream("POST", url + CHAT_PATH, json={**body, **_STREAMED}) as response:
            if response.status_code != HTTPStatus.OK:
                return f"status {response.status_code}: {(await response.aread()).decode(errors='replace')}"
            async for data in response.aiter_bytes():  # parsed later, so that a block's time is that of its coming
                blocks.append(Block(time.perf_counter(), data))
    except httpx.HTTPError as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


def read_answer(sent_s: float, ended_s: float, blocks: Sequence[Block], error: str | None = None) -> Answer:
    """What the blocks of a reply's body say."""
    chunks_s: list[float] = []
    text = ""
    usage: Mapping[str, int] = {}
    for at_s, event in _events(blocks):
        if piece := "".join(map(_text, event.get("choices") or ())):
            chunks_s.append(at_s)
            text += piece
        usage = event.get("usage") or usage
        if "error" in event:
            error = json.dumps(event["error"])
    return Answer(
        sent_s=sent_s,
        ended_s=ended_s,
        chunks_s=tuple(chunks_s),
        text=text,
        num_prompt_tokens=usage.get("prompt_tokens", 0),
        num_output_tokens=usage.get("completion_tokens", len(chunks_s)),
        error=error if error or chunks_s or usage else "the reply had no text",
    )


_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def _events(blocks: Iterable[Block]) -> Iterator[tuple[float, dict[str, Any]]]:
    """The events of a stream, each with the time of the block that ended its line."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block.data).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                yield block.at_s, json.loads(data)


def _text(choice: Mapping[str, Any]) -> str:
    said = choice.get("delta") or choice
    return said.get("reasoning_content") or said.get("content") or said.get("text") or ""
