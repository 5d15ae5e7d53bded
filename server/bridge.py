"""The engine as asyncio sees it: requests go in, updates come out, nothing blocks.

Knows event loop and engine thread, and what is open. Knows no HTTP and no schema. Each step of the engine costs one
hand-over to the event loop, on which everything here but `_load` and `_deliver` runs.
"""

import asyncio
import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from mtplx.configs.settings import Settings
from mtplx.engine.errors import EngineUnavailableError
from mtplx.engine.grammar.compiler import GrammarCompiler
from mtplx.engine.limits import Limits
from mtplx.engine.loop import EngineLoop, LoopStatus, Stepper
from mtplx.engine.text.fill_in import FillIn
from mtplx.engine.types import Request, SpeculationReport, Update
from mtplx.kernels.report import KernelReport
from mtplx.server.metrics import Metrics, Timeline
from mtplx.server.streams import RequestStream
from mtplx.server.token_texts import TokenTexts
from mtplx.server.versions import versions

if TYPE_CHECKING:  # would bring in MLX, which the engine thread loads while the server already answers
    from mtplx.engine.models.loaded import LoadedModel

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_JOIN_S = 2.0
_SENDING_S = 0.003  # at most, that a step waits until what the last one brought has been sent
_SENDING_TURNS = 3  # of the event loop, from an update to the socket


@dataclass(frozen=True)
class LoadedEngine:
    """What loading gives: a model, what requests may ask of it, what decodes them, how (see `Target.way`), and with
    which kernels."""

    model: "LoadedModel"
    limits: Limits
    stepper: Stepper
    way: Literal["rows", "sequential"]
    kernels: KernelReport


LoadEngine: TypeAlias = Callable[[Settings], LoadedEngine]


@dataclass(frozen=True)
class ServedModel:
    """The model under the name that clients know it by. `created` is when it was ready, in Unix seconds."""

    name: str
    created: int
    fingerprint: str
    loaded: "LoadedModel"
    limits: Limits
    way: Literal["rows", "sequential"]
    kernels: KernelReport

    @cached_property
    def token_texts(self) -> TokenTexts:
        return TokenTexts(self.loaded.tokenizer)

    @cached_property
    def grammars(self) -> GrammarCompiler:
        return GrammarCompiler(self.loaded.tokenizer, self.loaded.vocab_size)

    @cached_property
    def compiling(self) -> asyncio.Lock:
        """Held by who has a grammar compiled, which may take seconds: those who wait need no threads meanwhile."""
        return asyncio.Lock()

    @cached_property
    def fill_in(self) -> FillIn | None:
        """How to ask for a text between two others, if the model knows that."""
        return FillIn.of(self.loaded.tokenizer)


@dataclass(frozen=True)
class _Open:
    stream: RequestStream
    timeline: Timeline


class AsyncEngine:
    """Runs the engine loop for the server. `load_engine` is called on the engine thread."""

    def __init__(self, settings: Settings, load_engine: LoadEngine) -> None:
        self.settings = settings
        self._load_engine = load_engine
        self._loop = EngineLoop(self._load, self._deliver, max_open=settings.max_running + settings.max_waiting)
        self._open: dict[str, _Open] = {}
        self._stopping = asyncio.Event()
        self._are_sent = threading.Event()
        self._ready: tuple[ServedModel, Metrics] | None = None
        self._stepper: Stepper | None = None

    def start(self) -> None:
        """Begin to load, without waiting for it."""
        self._event_loop = asyncio.get_running_loop()
        self._loop.start()

    def stop(self, grace_s: float = 0.0) -> None:
        """Take no more requests, and fail those that are still open after `grace_s` seconds."""
        self._stopping.set()
        self._loop.stop(grace_s)

    async def unless_stopping(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` gives. Gives it up and raises EngineUnavailableError once the engine takes no more requests."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            stopping.cancel()
        if not working.done():
            raise EngineUnavailableError("the server is shutting down")
        return working.result()

    async def join(self) -> None:
        """Wait a little for the engine thread to end, unless it loads, which nothing can cut short."""
        if self.status.state != "loading":
            await asyncio.to_thread(self._loop.join, _JOIN_S)

    @property
    def is_alive(self) -> bool:
        """Whether the engine thread runs."""
        return not self._loop.join(0)

    @property
    def status(self) -> LoopStatus:
        return self._loop.status

    @property
    def known_model(self) -> ServedModel | None:
        """The model, once it has been loaded, whatever became of the engine since."""
        return self._ready and self._ready[0]

    @property
    def metrics(self) -> Metrics | None:
        return self._ready and self._ready[1]

    @property
    def speculation(self) -> SpeculationReport | None:
        """What has been learnt of speculation, once there is a model."""
        return None if self._stepper is None else self._stepper.speculation

    def require_model(self) -> ServedModel:
        """The model to serve a request with. Raises EngineUnavailableError unless the engine takes requests."""
        self._loop.require_ok()
        assert self.known_model is not None
        return self.known_model

    def submit(self, requests: Sequence[Request], *, cut_off: Callable[[], None]) -> RequestStream:
        """Queue the requests of one reply, all or none, whose client is cut off if it reads too slowly.

        Raises EngineUnavailableError or OverloadedError.
        """
        names = [request.id for request in requests]

        def give_up() -> None:
            assert self.metrics is not None
            self.metrics.count_slow_reader()
            logger.warning("request %s: the client reads too slowly, and is cut off", names[0])
            cut_off()

        stream = RequestStream(names, self._loop.abort, give_up, self.settings.max_stream_buffer * len(names))
        submitted_at_s = time.monotonic()
        self._loop.submit(*requests)
        for request in requests:
            self._open[request.id] = _Open(stream, Timeline(len(request.prompt), submitted_at_s=submitted_at_s))
        return stream

    def _load(self) -> Stepper:
        started_at_s = time.monotonic()
        engine = self._load_engine(self.settings)
        loaded = engine.model
        name = self.settings.served_model_name or loaded.id
        model = ServedModel(
            name, int(time.time()), _fingerprint(engine), loaded, engine.limits, engine.way, engine.kernels
        )
        self._stepper = engine.stepper
        metrics = Metrics(
            self.settings.metrics_namespace,
            name,
            engine.limits,
            load=lambda: self._loop.status.load,
            speculation=lambda: engine.stepper.speculation,
        )
        self._ready = model, metrics
        if not engine.kernels.is_slow:  # which is said where it is found
            logger.info("kernels: %s", engine.kernels)
        logger.info("serving %s from %s, loaded in %.1f s", name, loaded.source, time.monotonic() - started_at_s)
        return engine.stepper

    def _deliver(self, updates: Sequence[Update]) -> None:
        """Hands them over and, if there are several, waits a moment until they are sent. The next forward takes every
        processor, and each of its threads waits for all others: what is left to send would hold all of them up."""
        waits = len(updates) > 1
        self._are_sent.clear()
        with contextlib.suppress(RuntimeError):  # the event loop has closed: nobody is left to tell
            self._event_loop.call_soon_threadsafe(self._dispatch, updates, time.monotonic(), waits)
            if waits:
                self._are_sent.wait(_SENDING_S)

    def _dispatch(self, updates: Sequence[Update], at_s: float, is_awaited: bool) -> None:
        assert self.metrics is not None
        for update in updates:
            opened = self._open[update.request_id]
            self.metrics.observe(opened.timeline, update, at_s)
            opened.stream.push(update)
            if update.completion is not None:
                del self._open[update.request_id]
        if is_awaited:
            self._after_turns(_SENDING_TURNS)

    def _after_turns(self, num_turns: int) -> None:
        if num_turns:
            self._event_loop.call_soon(self._after_turns, num_turns - 1)
        else:
            self._are_sent.set()


def _fingerprint(engine: LoadedEngine) -> str:
    """Tells clients when an answer to the same request and seed may differ: the model or the software changed."""
    parts = (engine.model.id, engine.model.quantization, str(engine.kernels.isa), *versions().values())
    return "fp_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
