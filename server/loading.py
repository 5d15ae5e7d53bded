"""The engine that the settings ask for. Called on the engine's thread, while the server already answers."""

from functools import partial
from typing import TYPE_CHECKING

from mtplx.configs.settings import Settings
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.limits import Limits
from mtplx.engine.types import AUTO, PLAIN
from mtplx.server.bridge import LoadedEngine

if TYPE_CHECKING:  # these bring in MLX
    from mtplx.engine.cache_memory import CacheMemory
    from mtplx.engine.scheduler import Scheduler
    from mtplx.engine.speculative import Speculator

_CACHE_SHARE = 4  # of the machine's memory, for rows of running requests
_PREFIX_SHARE = 16  # the same for rows that are kept for later ones


def load_engine(settings: Settings) -> LoadedEngine:
    """Load the model and make its scheduler. Raises ModelLoadError."""
    # Imported here, for these bring in MLX and take longer than starting to listen.
    from mtplx.engine.assembly import (
        default_prefill_chunk,
        give_back_memory,
        load_draft_head,
        load_draft_model,
        machine_memory_bytes,
        make_speculator,
    )
    from mtplx.engine.cache_memory import CacheMemory
    from mtplx.engine.models.loading import load_model
    from mtplx.engine.models.running import row_bytes, row_type
    from mtplx.engine.models.shipped_head import with_shipped_head
    from mtplx.kernels.preparing import prepare_kernels, speed_up

    kernels = prepare_kernels(use_native=settings.native_kernels, threads=settings.threads, inputs=settings.activations)
    model = load_model(settings.model)
    kernels = speed_up(model.model, kernels)
    model = with_shipped_head(model)
    head = load_draft_head(settings.draft_head, model, kernels)
    speculator = make_speculator(
        model,
        draft=load_draft_model(settings.draft_model, kernels),
        head=head,
        self_draft_layers=settings.self_draft_layers,
        self_draft_bits=settings.self_draft_bits,
        measure_self=settings.drafter == "self" or (settings.drafter == AUTO and head is None),
        half_rows=settings.kv_cache_dtype == AUTO,
        ngram_pool_tokens=settings.ngram_pool_tokens,
    )
    kernels = kernels.with_decoder(row_type(speculator.target))
    if settings.drafter not in (AUTO, PLAIN, *speculator.drafters):
        raise ModelLoadError(f"the drafter {settings.drafter!r} is not available for {model.id}; choose another")
    memory = CacheMemory(
        _megabytes(settings.cache_memory_mb, machine_memory_bytes() // _CACHE_SHARE), row_bytes(speculator.target)
    )
    limits = Limits(
        model.context_length, model.vocab_size, settings.max_speculative_depth, tuple(speculator.drafters), memory
    )
    scheduler = _scheduler(settings, speculator, memory, default_prefill_chunk(kernels))
    give_back_memory()
    return LoadedEngine(model, limits, scheduler, speculator.target.way, kernels)


def _scheduler(settings: Settings, speculator: "Speculator", memory: "CacheMemory", default_chunk: int) -> "Scheduler":
    from mtplx.engine.assembly import machine_memory_bytes
    from mtplx.engine.models.running import fingerprint
    from mtplx.engine.prefix.prefix_cache import PrefixCache
    from mtplx.engine.scheduler import Scheduler, SchedulerLimits

    prefixes = PrefixCache(_megabytes(settings.prefix_cache_mb, machine_memory_bytes() // _PREFIX_SHARE))
    on_close = None
    if settings.prefix_cache_dir is not None:
        name = fingerprint(speculator.target)
        prefixes.load(settings.prefix_cache_dir, name)
        on_close = partial(prefixes.save, settings.prefix_cache_dir, name, prefixes.budget_bytes)
    chunk = settings.prefill_chunk or default_chunk
    limits = SchedulerLimits(
        max_running=settings.max_running,
        prefill_chunk=chunk,
        max_step_rows=settings.max_step_rows or 2 * chunk,
        queue_timeout_s=settings.queue_timeout_s,
    )
    return Scheduler(speculator, limits, memory, prefixes, on_close)


def _megabytes(chosen: int | None, default_bytes: int) -> int:
    return default_bytes if chosen is None else chosen * 2**20
