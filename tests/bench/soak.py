"""Whether the server stays itself: for a long time clients come and go at random, and then all must add up.

`python -m tests.bench.soak [SECONDS]` (1,200 if not given) soaks the default model. Requests differ in drafter, depth,
sampling, stops and length; some clients leave, at any moment; some requests are bad. Then every counter must be what
the clients saw, every answer what the same request gets alone, and memory, threads and open files what they were after
a warm-up. In the last part nobody leaves, so that counters must be exact. Exits with 1 when anything is amiss.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from mtplx.server.bench.serving.process import ServerProcess, own_server
from tests.bench.process import num_open_files, num_threads, resident_bytes
from tests.bench.row import Row, finish
from tests.bench.soak_ledger import Counters, Drafts, Seen, difference, discrepancies, read_counters
from tests.bench.soak_requests import Body, Offer, bad_bodies, path_of, random_bodies, solo_body

SECONDS = 1200.0
PARTS = {"warm-up": 0.2, "all at random": 0.6, "nobody leaves": 0.2}  # shares of the time
NUM_CLIENTS = 20  # more than run and wait together, so that some are turned away
MAX_WAITING = 8
PREFIX_CACHE_MB = 200  # full before the warm-up ends, so that its growth is not taken for a leak
NUM_BODIES = 200
LEAVING, BAD = 0.4, 0.1  # shares of the requests
MOST_PATIENCE_S, LEAST_PATIENCE_S = 3.0, 0.001
SETTLE_S = 0.5  # for the server to notice the last disconnect
GROWTH_MB = 40.0
MAX_POOL = 8.0  # threads that asyncio may add to its pool as it sees fit; what leaks does so without end


@dataclass
class Diary:
    """What befell the clients of one part."""

    seen: list[Seen] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # replies that must not be


@dataclass(frozen=True)
class State:
    """The server when nothing is asked of it."""

    counters: Counters
    memory_mb: float
    threads: int | None
    open_files: int | None


@dataclass(frozen=True)
class Found:
    """What is amiss in a part, in words, and how many answers were compared."""

    counters: Sequence[str]
    answers: Sequence[str]
    num_compared: int


# ---- a client -------------------------------------------------------------------------------------------------------


@dataclass
class Reply:
    """A reply as far as it has come."""

    status: int | None = None
    text: str = ""
    num_chunks: int = 0
    reason: str | None = None
    last: Mapping[str, Any] = field(default_factory=dict)  # has usage and metrics at the end

    def read(self, event: Mapping[str, Any]) -> None:
        self.last = event
        for choice in event.get("choices", ()):
            said = choice.get("delta") or choice.get("message") or choice
            piece = said.get("content") or said.get("text") or ""
            self.text += piece
            self.num_chunks += bool(piece)
            self.reason = choice["finish_reason"]

    def seen(self, request: int, body: Body) -> Seen:
        if self.reason is None or "usage" not in self.last:
            return Seen(request, None, self.status is not None, self.text, self.num_chunks, body["max_tokens"])
        told = self.last["metrics"]["speculative_decoding"]
        drafts = Drafts(told["num_spec_steps"], told["num_draft_tokens"], told["num_accepted_draft_tokens"])
        num_output = self.last["usage"]["completion_tokens"]
        return Seen(request, self.reason, True, self.text, num_output, body["max_tokens"], drafts)


async def ask(client: httpx.AsyncClient, body: Body, reply: Reply, *, stream: bool) -> None:
    """Fill `reply` while it comes."""
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    async with client.stream("POST", path_of(body), json={**body, **streamed}) as response:
        reply.status = response.status_code
        if not stream or response.status_code != HTTPStatus.OK:
            reply.read(json.loads(await response.aread()))
            return
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                reply.read(json.loads(line.removeprefix("data: ")))


class Clients:
    """Clients that ask what they please until the time is up."""

    def __init__(self, url: str, bodies: Sequence[Body], bad: Sequence[tuple[Body | str, int]], seed: int) -> None:
        self._url = url
        self._bodies = bodies
        self._bad = bad
        self._chance = random.Random(seed)

    async def soak(self, seconds: float, *, leaving: float) -> Diary:
        diary = Diary()
        end_s = time.monotonic() + seconds
        async with httpx.AsyncClient(base_url=self._url, timeout=None) as client:
            await asyncio.gather(*(self._be_client(client, diary, end_s, leaving) for _ in range(NUM_CLIENTS)))
        return diary

    async def _be_client(self, client: httpx.AsyncClient, diary: Diary, end_s: float, leaving: float) -> None:
        while time.monotonic() < end_s:
            if self._chance.random() < BAD:
                await self._ask_badly(client, diary)
            else:
                await self._ask(client, diary, leaves=self._chance.random() < leaving)

    async def _ask(self, client: httpx.AsyncClient, diary: Diary, *, leaves: bool) -> None:
        request = self._chance.randrange(len(self._bodies))
        body, reply = self._bodies[request], Reply()
        # Of every order of magnitude alike, for some leave before they are heard and some nearly at the end.
        patience_s = MOST_PATIENCE_S * (LEAST_PATIENCE_S / MOST_PATIENCE_S) ** self._chance.random()
        asking = asyncio.ensure_future(ask(client, body, reply, stream=self._chance.random() < 0.7))
        await asyncio.wait([asking], timeout=patience_s if leaves else None)
        asking.cancel()
        [error] = await asyncio.gather(asking, return_exceptions=True)
        if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
            diary.events["turned away"] += 1
            await asyncio.sleep(self._chance.random())
        elif reply.status not in (None, HTTPStatus.OK) or "error" in reply.last or isinstance(error, Exception):
            diary.wrong.append(f"{body}: status {reply.status}, {error!r}, {reply.last.get('error')}")
        else:
            seen = reply.seen(request, body)
            diary.seen.append(seen)
            diary.events[_name(seen)] += 1

    async def _ask_badly(self, client: httpx.AsyncClient, diary: Diary) -> None:
        body, status = self._chance.choice(self._bad)
        content = body if isinstance(body, str) else json.dumps(body)
        headers = {"content-type": "application/json"}
        response = await client.post("/v1/completions", content=content, headers=headers)
        diary.events["bad, and refused"] += 1
        if response.status_code != status:
            diary.wrong.append(f"a bad request got status {response.status_code}, not {status}: {content[:100]}")


def _name(seen: Seen) -> str:
    if seen.reason is not None:
        return "answered"
    return "left while it was written" if seen.num_output else "left waiting" if seen.taken else "left unheard"


# ---- the server -----------------------------------------------------------------------------------------------------


def state(server: ServerProcess) -> State:
    """Once nothing runs or waits, and what clients did has been noticed."""
    while any(httpx.get(f"{server.url}/health").json()["load"][name] for name in ("num_running", "num_waiting")):
        time.sleep(SETTLE_S)
    time.sleep(SETTLE_S)
    counters = read_counters(httpx.get(f"{server.url}/metrics").text)
    pid = server.pid
    return State(counters, resident_bytes(pid) / 1e6, num_threads(pid), num_open_files(pid))


def offer(url: str) -> Offer:
    model = httpx.get(f"{url}/health").json()["model"]

    def takes(**fields: object) -> bool:
        body = {"model": model["id"], "prompt": "one", "max_tokens": 1, **fields}
        return httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == HTTPStatus.OK

    auto, rules = takes(speculative_depth="auto"), takes(acceptance="coupled")
    return Offer(model["id"], model["max_model_len"], model["drafters"], auto, rules)


class Solo:
    """Answers to requests when nothing else is asked."""

    def __init__(self, url: str, bodies: Sequence[Body]) -> None:
        self._url = url
        self._bodies = bodies
        self._answers: dict[int, Seen | None] = {}
        self.prompt_tokens: dict[int, int] = {}

    def answer(self, request: int) -> Seen | None:
        """None where nothing is promised but the law."""
        if request not in self._answers:
            body = self._bodies[request]
            alone = solo_body(body)
            reply = asyncio.run(self._ask(alone or body))
            self.prompt_tokens[request] = reply.last["usage"]["prompt_tokens"]
            self._answers[request] = reply.seen(request, body) if alone else None
        return self._answers[request]

    async def _ask(self, body: Body) -> Reply:
        reply = Reply()
        async with httpx.AsyncClient(base_url=self._url, timeout=None) as client:
            await ask(client, body, reply, stream=False)
        return reply


def examine(diary: Diary, counted: Counters, solo: Solo) -> Found:
    """Compare what was seen with the counters, and with the answers to the same requests alone."""
    differing, num_compared = [], 0
    for seen in diary.seen:
        alone = solo.answer(seen.request)
        if alone is None:
            continue
        num_compared += 1
        if seen.reason is None:
            if not alone.text.startswith(seen.text):
                differing.append(f"request {seen.request} began {seen.text!r}, alone {alone.text!r}")
        elif (seen.text, seen.reason, seen.num_output) != (alone.text, alone.reason, alone.num_output):
            differing.append(f"request {seen.request}: {seen}, alone {alone}")
    return Found(discrepancies(counted, diary.seen, solo.prompt_tokens), differing, num_compared)


def soak(server: ServerProcess, seconds: float, *, num_bodies: int = NUM_BODIES, seed: int = 0) -> list[Row]:
    """Soak for so long, then examine; what is amiss is told on standard error, and the rows count it."""
    offered = offer(server.url)
    bodies = random_bodies(offered, num_bodies, seed)
    diaries, states = [], [state(server)]
    for part, (name, share) in enumerate(PARTS.items()):
        clients = Clients(server.url, bodies, bad_bodies(offered), seed=seed + part)
        leaving = 0.0 if name == "nobody leaves" else LEAVING
        diaries.append(asyncio.run(clients.soak(share * seconds, leaving=leaving)))
        states.append(state(server))
    solo = Solo(server.url, bodies)
    found = [
        examine(diary, difference(before.counters, after.counters), solo)
        for diary, before, after in zip(diaries, states[:-1], states[1:], strict=True)
    ]
    wrong = [line for diary in diaries for line in diary.wrong]
    miscounts = [f"{name}: {line}" for name, part in zip(PARTS, found, strict=True) for line in part.counters]
    differing = [line for part in found for line in part.answers]
    print(*wrong, *miscounts, *differing, sep="\n", end="", file=sys.stderr)
    return [
        *(
            Row(f"requests {name}", num, "")
            for name, num in sorted(sum((diary.events for diary in diaries), Counter()).items())
        ),
        Row("replies that must not be", len(wrong), "", 0, True),
        Row("counters that clients saw otherwise", len(miscounts), "", 0, True),
        Row("answers compared with those given alone", sum(part.num_compared for part in found), ""),
        Row("answers that differ from those given alone", len(differing), "", 0, True),
        *growth_rows(states[1], states[-1]),
    ]


def growth_rows(before: State, after: State) -> list[Row]:
    def more(now: int | None, then: int | None) -> int | None:
        return None if now is None or then is None else now - then

    return [
        Row("resident memory after the warm-up", before.memory_mb, "MB"),
        Row("memory more than then", after.memory_mb - before.memory_mb, "MB", GROWTH_MB, True),
        Row("threads more than then", more(after.threads, before.threads), "", MAX_POOL, True),
        Row("open files more than then", more(after.open_files, before.open_files), "", NUM_CLIENTS, True),
    ]


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with own_server({"max_waiting": MAX_WAITING, "prefix_cache_mb": PREFIX_CACHE_MB, "log_level": "error"}) as server:
        rows = soak(server, seconds)
    print(*rows, sep="\n")
    return finish(rows)


if __name__ == "__main__":
    sys.exit(main())
