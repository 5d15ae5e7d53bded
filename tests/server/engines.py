"""Engines without weights for the server's tests: real schedulers and rounds over a model that writes letters."""

import time
from collections.abc import Sequence
from dataclasses import replace

import mlx.nn as nn
import numpy as np

from mtplx.configs.settings import Settings
from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.limits import Limits
from mtplx.engine.loop import Load
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.target import Rows
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.scheduler import Scheduler, SchedulerLimits
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Logits, Request, SpeculationReport, Update
from mtplx.kernels.report import KernelReport
from mtplx.server.bridge import LoadedEngine, LoadEngine
from tests.fakes import EOS, ByteTokenizer, TabularTarget

MODEL = "letters/a-to-h"
CONTEXT_LENGTH = 4096
VOCAB_SIZE = EOS + 1
KERNELS = KernelReport(False, "letters need none")
POISON = "!"  # after this the model gives logits that are not finite


class LetterTarget(TabularTarget):
    """Writes the letters a to h, at least `pace_s` seconds a forward. Its vocabulary is the byte tokenizer's."""

    def __init__(self, pace_s: float = 0.0) -> None:
        super().__init__(VOCAB_SIZE)
        self._letters = TabularTarget(vocab_size=8)
        self._pace_s = pace_s

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        time.sleep(self._pace_s)
        return super().forward(batch)

    def logits(self, context: Sequence[int]) -> Logits:
        if context[-1] == ord(POISON):
            return np.full(VOCAB_SIZE, np.nan, dtype=np.float32)
        logits = np.full(VOCAB_SIZE, -50, dtype=np.float32)
        logits[ord("a") : ord("i")] = self._letters.logits(context)
        return logits


def letter_model() -> LoadedModel:
    return LoadedModel(
        id=MODEL,
        source="nowhere",
        architecture="tabular",
        quantization="none",
        context_length=CONTEXT_LENGTH,
        vocab_size=VOCAB_SIZE,
        model=nn.Module(),
        tokenizer=ByteTokenizer(),
    )


def letter_speculator(pace_s: float = 0.0) -> Speculator:
    return Speculator(LetterTarget(pace_s), {"ngram": NgramDrafter()}, ByteTokenizer())


def letter_engine(pace_s: float = 0.0) -> LoadEngine:
    """What `create_app` loads its engine with."""

    def load_engine(settings: Settings) -> LoadedEngine:
        speculator = letter_speculator(pace_s)
        scheduler = Scheduler(
            speculator,
            SchedulerLimits(max_running=settings.max_running, prefill_chunk=16, max_step_rows=64),
            CacheMemory(max_bytes=10**9, row_bytes=10),
            PrefixCache(0),
        )
        limits = Limits(CONTEXT_LENGTH, VOCAB_SIZE, settings.max_speculative_depth, tuple(speculator.drafters))
        return LoadedEngine(letter_model(), limits, scheduler, "rows", KERNELS)

    return load_engine


class CrashingScheduler:
    """Takes requests, and crashes at the first step."""

    def __init__(self) -> None:
        self.load = Load()

    def add(self, request: Request) -> None:
        self.load = Load(num_running=1)

    def abort(self, request_id: str) -> Sequence[Update]:
        return []

    @property
    def speculation(self) -> SpeculationReport:
        return SpeculationReport()

    def step(self) -> Sequence[Update]:
        raise RuntimeError("a bolt came loose")

    def close(self) -> None:
        pass


def crashing_engine(settings: Settings) -> LoadedEngine:
    """An engine whose loop does not survive its first request."""
    return replace(letter_engine()(settings), stepper=CrashingScheduler())


def unloadable_engine(settings: Settings) -> LoadedEngine:
    raise ModelLoadError("there is no such model; look elsewhere")
