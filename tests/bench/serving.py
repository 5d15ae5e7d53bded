"""Whether the server serves many clients well: the default model over HTTP, beside one client and beside llama.cpp.

Run it with nothing else running. llama.cpp's server is measured if LLAMA_SERVER names it. All that is compared is
measured in turn; a value is the median of the turns, a ratio that of the turns' ratios, and percentiles are over all
turns. With JSON=path the rows are written there too. Exits with 1 when a row falls short.
"""

import asyncio
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from mtplx import EngineSession, GenerationConfig
from mtplx.engine.models.default_model import default_model_path
from mtplx.kernels.native_module import why_unavailable
from mtplx.server.bench.prompts import BUILT_IN, choose_prompts, read_prompts
from mtplx.server.bench.serving.arrivals import ClosedLoop, run
from mtplx.server.bench.serving.asking import Answer, Block, ask, read_answer, receive
from mtplx.server.bench.serving.bodies import endless_bodies
from mtplx.server.bench.serving.process import ServerProcess, free_port, model_name, own_server, server_process
from tests.bench.process import resident_bytes
from tests.bench.row import Row, finish

NUM_TURNS = 3
NUM_CLIENTS = 8
NUM_THREADS = 2
OUTPUT_TOKENS = 200
AFTERWARDS_S = 2.0
LONG_TOKENS = 4000
CHAT_TOKENS = 2000
USUAL_CHUNKS = 150  # of a stream, before the long prompt comes
HTTP_TOKENS = 128
HTTP_TURNS = 21
NEVER = -100.0  # the bias of tokens that would end a text before its time
WORDS = "the quick brown fox jumps over lazy dogs while an old river carries its many stories down to a calm sea"

PLAIN = {"speculative_depth": 0}


class Asker:
    """Makes requests to our server. Each begins with words of its own, so that none is known to the prefix cache."""

    def __init__(self, server: ServerProcess, session: EngineSession) -> None:
        self.url, self.pid = server.url, server.pid
        self.end_tokens = session.model.tokenizer.eos_token_ids
        self._tokenizer = session.model.tokenizer
        self._random = random.Random(0)
        bias = {str(token): NEVER for token in self.end_tokens}
        self._fields = {"model": model_name(server.url), "logit_bias": bias, "temperature": 0}

    def tokens(self, num_tokens: int) -> list[int]:
        text = " ".join(self._random.choices(WORDS.split(), k=num_tokens))
        return self._tokenizer.encode(text)[:num_tokens]

    def message(self, num_tokens: int) -> dict[str, str]:
        return {"role": "user", "content": self._tokenizer.decode(self.tokens(num_tokens))}

    def body(self, *messages: dict[str, str], max_tokens: int, **fields: Any) -> dict[str, Any]:
        return {**self._fields, "messages": messages, "max_tokens": max_tokens, **fields}


def good(answers: Sequence[Answer]) -> Sequence[Answer]:
    for answer in answers:
        if answer.error is not None:
            raise SystemExit(f"a request failed: {answer.error}")
    return answers


def total_rate(url: str, num_clients: int, bodies: Sequence[dict[str, Any]]) -> float:
    """Output tokens a second of all clients together, prompts included."""
    measured = run(url, ClosedLoop(num_clients), bodies)
    return sum(answer.num_output_tokens for answer in good(measured.answers)) / measured.elapsed_s


def median(values: Sequence[float]) -> float | None:
    """None where nothing was measured."""
    return statistics.median(values) if values else None


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Of what was measured in the same turn."""
    return median([one / other for one, other in zip(ours, theirs, strict=True)] if theirs else [])


# ---- the rows -------------------------------------------------------------------------------------------------------


def memory_rows(asker: Asker) -> list[Row]:
    """After requests of every kind have been served once, and the server idles."""
    for drafter in ("none", "ngram", "self"):
        body = asker.body(asker.message(200), max_tokens=32, drafter=drafter)
        good(run(asker.url, ClosedLoop(NUM_CLIENTS), [body] * NUM_CLIENTS).answers)
    time.sleep(1)
    return [Row("resident memory, idle after a warm-up", resident_bytes(asker.pid) / 1e6, "MB", 600, True)]


@contextmanager
def llama_server() -> Iterator[str | None]:
    """The address of llama.cpp's server with a slot for each client; None if LLAMA_SERVER does not name it."""
    program = os.environ.get("LLAMA_SERVER")
    if not program:
        yield None
        return
    port = free_port()
    options = {"-m": default_model_path(), "-t": NUM_THREADS, "-np": NUM_CLIENTS, "-c": 8192, "--port": port}
    command = [program, *(str(word) for option in options.items() for word in option)]
    with server_process(command, port, quiet=True) as server:
        yield server.url


def load_rows(asker: Asker) -> list[Row]:
    prompts = choose_prompts(read_prompts(BUILT_IN), ["writing", "qa"])
    bodies = endless_bodies(prompts, max_tokens=OUTPUT_TOKENS, end_tokens=asker.end_tokens, fields={})
    ours = {"model": model_name(asker.url)}
    one: list[float] = []
    eight: list[float] = []
    theirs: list[float] = []
    with llama_server() as llama:
        for _ in range(NUM_TURNS):
            few, many = list(islice(bodies, 4)), list(islice(bodies, 2 * NUM_CLIENTS))
            one.append(total_rate(asker.url, 1, [{**body, **ours, **PLAIN} for body in few]))
            eight.append(total_rate(asker.url, NUM_CLIENTS, [{**body, **ours} for body in many]))
            if llama is not None:
                theirs.append(total_rate(llama, NUM_CLIENTS, [{**body, "model": "any"} for body in many]))
    return [
        Row("one client, plain decoding", median(one), "tok/s"),
        Row(f"{NUM_CLIENTS} clients", median(eight), "tok/s"),
        Row(f"  llama.cpp's server, {NUM_CLIENTS} clients", median(theirs), "tok/s"),
        Row(f"{NUM_CLIENTS} clients: beside one that decodes plainly", median_ratio(eight, one), "x", 2.5),
        Row(f"{NUM_CLIENTS} clients: beside llama.cpp's server", median_ratio(eight, theirs), "x", 2.0),
    ]


def stall_rows(asker: Asker) -> list[Row]:
    usual: list[float] = []
    meanwhile: list[float] = []
    prefill: list[float] = []
    for _ in range(NUM_TURNS):
        chunks_s, long = asyncio.run(stream_beside_prompt(asker))
        gaps = split_gaps(chunks_s, long.sent_s, long.sent_s + long.first_text_s)
        usual += gaps[0]
        meanwhile += gaps[1]
        prefill.append(long.first_text_s)
    (usual_50, usual_95), (during_50, during_95) = (
        1e3 * np.percentile(gaps_s, (50, 95)) for gaps_s in (usual, meanwhile)
    )
    name = f"{LONG_TOKENS:,} tokens of prompt"
    return [
        Row(f"first text after {name}, beside a stream", median(prefill), "s"),
        Row("between a stream's chunks: 50 %", float(usual_50), "ms"),
        Row("between a stream's chunks: 95 %", float(usual_95), "ms"),
        Row("  while the prompt is read: 50 %", float(during_50), "ms"),
        Row("  while the prompt is read: 95 %", float(during_95), "ms"),
        Row(f"95 % while {name} are read: beside usual", float(during_95 / usual_95), "x", 2.0, True),
    ]


def split_gaps(chunks_s: Sequence[float], start_s: float, end_s: float) -> tuple[list[float], list[float]]:
    """Seconds between chunks before `start_s` and after `end_s`, and of all gaps with a part in what is between."""
    pairs = list(pairwise(chunks_s))
    usual = [after - before for before, after in pairs if after <= start_s or before >= end_s]
    meanwhile = [after - before for before, after in pairs if after > start_s and before < end_s]
    return usual, meanwhile


async def stream_beside_prompt(asker: Asker) -> tuple[Sequence[float], Answer]:
    """When the chunks of a plain stream came, and the answer to a long prompt that was sent meanwhile."""
    blocks: list[Block] = []
    async with httpx.AsyncClient(timeout=None) as client:
        started_s = time.perf_counter()
        body = asker.body(asker.message(20), max_tokens=LONG_TOKENS, **PLAIN)
        streaming = asyncio.ensure_future(receive(client, asker.url, body, blocks))
        while len(blocks) < USUAL_CHUNKS and not streaming.done():
            await asyncio.sleep(0.01)
        long = await ask(client, asker.url, asker.body(asker.message(LONG_TOKENS), max_tokens=1, **PLAIN))
        if streaming.done():
            raise SystemExit(f"the stream ended before the long prompt was read: {streaming.result()}")
        await asyncio.sleep(AFTERWARDS_S)  # the text is longer now, and its usual gaps are too
        streaming.cancel()
    good([long])
    return read_answer(started_s, time.perf_counter(), blocks).chunks_s, long


def chat_rows(asker: Asker) -> list[Row]:
    first, second = [], []
    for _ in range(NUM_TURNS):
        question, follow_up = asker.message(CHAT_TOKENS), asker.message(20)
        [answer] = good(run(asker.url, ClosedLoop(1), [asker.body(question, max_tokens=16)]).answers)
        said = {"role": "assistant", "content": answer.text}
        body = asker.body(question, said, follow_up, max_tokens=16)
        [next_answer] = good(run(asker.url, ClosedLoop(1), [body]).answers)
        first.append(1e3 * answer.first_text_s)
        second.append(1e3 * next_answer.first_text_s)
    return [
        Row(f"first turn of {CHAT_TOKENS:,} tokens: first text", median(first), "ms"),
        Row("second turn: first text", median(second), "ms"),
        Row("second turn: sooner than the first", median_ratio(first, second), "x", 10),
    ]


def layer_rows(asker: Asker, session: EngineSession) -> list[Row]:
    """Plain decoding of the same tokens with and without HTTP, the first token left out."""
    bare, served = [], []
    for _ in range(HTTP_TURNS):
        prompt = asker.tokens(32)
        bare.append(session_rate(session, prompt))
        served.append(streamed_rate(asker, prompt))
    share = statistics.median(slow / fast for slow, fast in zip(served, bare, strict=True))
    return [
        Row("plain decoding through EngineSession", median(bare), "tok/s"),
        Row("plain decoding through HTTP, streamed", median(served), "tok/s"),
        Row("what HTTP costs", 100 * (1 - share), "%", 5, True),
    ]


def session_rate(session: EngineSession, prompt: Sequence[int]) -> float:
    session.begin(prompt)
    session.step()
    started_s = time.perf_counter()
    for _ in range(HTTP_TOKENS - 1):
        session.step()
    return (HTTP_TOKENS - 1) / (time.perf_counter() - started_s)


def streamed_rate(asker: Asker, prompt: Sequence[int]) -> float:
    """By a client that does next to nothing: it shares the processors with the server."""
    body = {**asker.body(max_tokens=HTTP_TOKENS, **PLAIN), "prompt": prompt, "stream": True}
    del body["messages"]
    request = httpx.Request("POST", f"{asker.url}/v1/completions", json=body)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    address = urlsplit(asker.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(f"POST {request.url.path} HTTP/1.1\r\n{head}\r\n".encode() + request.content)
        first = connection.recv(2**16)
        while b"data: " not in first:
            first = connection.recv(2**16)
        started_s = time.perf_counter()
        ending = first
        while b"[DONE]" not in ending:
            ending = ending[-(2**10) :] + connection.recv(2**16)
        return (HTTP_TOKENS - 1) / (time.perf_counter() - started_s)


def main() -> int:
    reason = why_unavailable()
    if reason is not None:
        print(f"without native kernels there is nothing to measure: {reason}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    config = GenerationConfig(speculative_depth=0, max_tokens=HTTP_TOKENS)
    with own_server({}) as server, EngineSession(config) as session:
        asker = Asker(server, session)
        session.config = replace(config, logit_bias=dict.fromkeys(asker.end_tokens, NEVER))
        for measure in (
            lambda: memory_rows(asker),
            lambda: layer_rows(asker, session),
            lambda: load_rows(asker),
            lambda: stall_rows(asker),
            lambda: chat_rows(asker),
            lambda: [Row("resident memory in the end", resident_bytes(asker.pid) / 1e6, "MB")],
        ):
            for row in measure():
                print(row, flush=True)
                rows.append(row)
    return finish(rows)


if __name__ == "__main__":
    sys.exit(main())
