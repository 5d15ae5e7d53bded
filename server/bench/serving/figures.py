"""What the runs of a load add up to. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtplx.server.bench.serving.arrivals import Run


@dataclass(frozen=True)
class Percentiles:
    """In milliseconds; None where there was nothing to measure."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, times_s: Sequence[float]) -> "Percentiles":
        if not times_s:
            return cls(None, None, None)
        return cls(*(float(value) for value in 1e3 * np.percentile(times_s, (50, 95, 99))))


@dataclass(frozen=True)
class Figures:
    """One server under one load. Lengths are means of the answered requests, as the server counts tokens.

    `first_text_ms` is the time to the first text, `between_ms` that between chunks with text, each of which counts
    once however many tokens it holds; see `tokens_per_chunk`. `whole_ms` is the time to the end of an answer.
    """

    server: str
    arrival: str
    num_requests: int
    num_failed: int
    prompt_tokens: float
    output_tokens: float
    tokens_per_s: float
    tokens_per_chunk: float
    first_text_ms: Percentiles
    between_ms: Percentiles
    whole_ms: Percentiles


def figures(server: str, arrival: str, runs: Sequence[Run]) -> Figures:
    """Over all runs. What failed counts as failed and for nothing else."""
    answers = [answer for run in runs for answer in run.answers]
    good = [answer for answer in answers if answer.error is None]
    spoken = [answer for answer in good if answer.chunks_s]
    num_tokens = sum(answer.num_output_tokens for answer in good)
    num_chunks = sum(len(answer.chunks_s) for answer in good)
    return Figures(
        server=server,
        arrival=arrival,
        num_requests=len(answers),
        num_failed=len(answers) - len(good),
        prompt_tokens=sum(answer.num_prompt_tokens for answer in good) / max(1, len(good)),
        output_tokens=num_tokens / max(1, len(good)),
        tokens_per_s=num_tokens / sum(run.elapsed_s for run in runs),
        tokens_per_chunk=num_tokens / max(1, num_chunks),
        first_text_ms=Percentiles.of([answer.first_text_s for answer in spoken]),
        between_ms=Percentiles.of([gap_s for answer in spoken for gap_s in answer.gaps_s]),
        whole_ms=Percentiles.of([answer.ended_s - answer.sent_s for answer in good]),
    )
