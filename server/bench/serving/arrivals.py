"""When requests are sent: by clients that wait for their answers, or at random whatever is open."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx
import numpy as np

from mtplx.server.bench.serving.asking import Answer, ask

Body: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """All answers of one measurement, and how long it took from the first request to the last answer."""

    answers: tuple[Answer, ...]
    elapsed_s: float


@dataclass(frozen=True)
class ClosedLoop:
    """Clients of which each sends its next request once the last is answered."""

    num_clients: int

    def __str__(self) -> str:
        return f"{self.num_clients} client{'s' * (self.num_clients > 1)}"

    async def send(self, client: httpx.AsyncClient, url: str, bodies: Sequence[Body]) -> list[Answer]:
        remaining = iter(bodies)

        async def be_client() -> list[Answer]:
            return [await ask(client, url, body) for body in remaining]

        groups = await asyncio.gather(*(be_client() for _ in range(self.num_clients)))
        return [answer for group in groups for answer in group]


@dataclass(frozen=True)
class Poisson:
    """Requests at independent random times, `rate` a second on average, sent however many are unanswered."""

    rate: float
    seed: int

    def __str__(self) -> str:
        return f"{self.rate:g} a second"

    def waits_s(self, num_requests: int) -> list[float]:
        """Seconds before each request, after the one before it."""
        return [float(wait) for wait in np.random.default_rng(self.seed).exponential(1 / self.rate, num_requests)]

    async def send(self, client: httpx.AsyncClient, url: str, bodies: Sequence[Body]) -> list[Answer]:
        asking = []
        for wait_s, body in zip(self.waits_s(len(bodies)), bodies, strict=True):
            await asyncio.sleep(wait_s)
            asking.append(asyncio.ensure_future(ask(client, url, body)))
        return await asyncio.gather(*asking)


Arrival: TypeAlias = ClosedLoop | Poisson


def run(url: str, arrival: Arrival, bodies: Sequence[Body]) -> Run:
    """Send the bodies to the server at `url` and wait for all answers."""
    return asyncio.run(_run(url, arrival, bodies))


async def _run(url: str, arrival: Arrival, bodies: Sequence[Body]) -> Run:
    # A server under load is slow: how slow is what is to be found out.
    async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as client:
        started_s = time.perf_counter()
        answers = await arrival.send(client, url, bodies)
        return Run(tuple(answers), time.perf_counter() - started_s)
