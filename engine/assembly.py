"""Puts the parts of an engine together for a loaded model. Knows which parts there are; does none of their work."""

import ctypes
import gc
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

import mlx.core as mx
import numpy as np

from mtplx.engine.drafters.base import Drafter
from mtplx.engine.drafters.fitted import FittedTarget, check_same_tokens
from mtplx.engine.drafters.forced import ForcedDrafter
from mtplx.engine.drafters.head import HeadDrafter
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.drafters.self_draft import NoSelfDrafterError, self_drafter
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.head_folder import load_head
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.mtp import DraftHead
from mtplx.engine.models.running import make_target, shows_hidden
from mtplx.engine.models.running_head import running_head
from mtplx.engine.models.target import Target
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import FORCED, HEAD, SELF
from mtplx.engine.vocabulary_part import PartOfVocabulary
from mtplx.kernels.preparing import speed_up
from mtplx.kernels.report import KernelReport

logger = logging.getLogger(__name__)

NO_HEAD = Path("none")

_M_MMAP_THRESHOLD = -3  # as <malloc.h> has it
_LARGE_BLOCK_BYTES = 1 << 20

_CONTAINER_MEMORY = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def default_prefill_chunk(kernels: KernelReport) -> int:
    """Rows of a prompt that one step forwards: on a GPU enough to fill it, on a CPU few enough to let others in."""
    if mx.default_device() == mx.gpu:
        return 512
    return 64 if kernels.active else 16


def machine_memory_bytes() -> int:
    """Of this machine, whoever uses it, or of the container we are in."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTAINER_MEMORY:
        with suppress(OSError, ValueError):  # there is no such file, or no limit in it
            limits.append(int(path.read_text()))
    return min(limits)


def give_back_memory() -> None:
    """To the system, what loading took and nobody uses any more: glibc would keep it. So are large blocks from now on,
    once they are free."""
    gc.collect()
    mx.clear_cache()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
            # Left to itself, glibc takes them from the heap once one was freed, where what lies behind keeps them.
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def load_draft_model(spec: str | None, kernels: KernelReport) -> LoadedModel | None:
    """The model of the drafter "model", named as any model is; None for None. Raises ModelLoadError."""
    if spec is None:
        return None
    draft = load_model(spec)
    speed_up(draft.model, kernels)
    return draft


def load_draft_head(path: Path | None, loaded: LoadedModel, kernels: KernelReport) -> DraftHead | None:
    """The head in the folder at `path`, or else the one that the model brings along, as fast as the model, which has
    been sped up if it ever is; None if `path` is "none". Raises ModelLoadError when the folder holds no head of this
    model."""
    if path == NO_HEAD:
        return None
    head = loaded.draft_head if path is None else load_head(path.expanduser(), loaded)
    if head is not None:
        speed_up(head.block, kernels)
    return head


def make_speculator(
    loaded: LoadedModel,
    *,
    draft: LoadedModel | None = None,
    head: DraftHead | None = None,
    self_draft_layers: int | None = None,
    self_draft_bits: int | None = None,
    measure_self: bool = False,
    half_rows: bool = False,
    ngram_pool_tokens: int = 0,
) -> Speculator:
    """The rounds of a model with all drafters it allows; the drafter "model" drafts with `draft`, "head" with `head`.

    The drafter "self" is as light as layers and bits say; with neither it is the usual copy or, with `measure_self`,
    the one that is expected to pay best, which takes about a second to find. `half_rows` is as for `make_target`, for
    all models. Raises ModelLoadError when `draft` or `head` cannot draft for the model; a head that the model brought
    along is left out instead, with a warning.
    """
    target = make_target(loaded.model, half_rows=half_rows)
    drafters: dict[str, Drafter] = {FORCED: ForcedDrafter(), "ngram": NgramDrafter(ngram_pool_tokens)}
    if head is not None:
        try:
            drafters[HEAD] = _head_drafter(loaded, target, head)
        except ModelLoadError as reason:
            if head is not loaded.draft_head:
                raise
            logger.warning("the draft head that %s brings along is not used: %s", loaded.id, reason)
    if draft is not None:
        drafters["model"] = _model_drafter(loaded, draft, half_rows=half_rows)
    try:
        drafters[SELF] = self_drafter(
            loaded.model,
            target,
            loaded.tokenizer,
            num_layers=self_draft_layers,
            bits=self_draft_bits,
            measure=measure_self,
        )
    except NoSelfDrafterError as reason:
        logger.warning("the drafter 'self' is not available for this model: %s", reason)
    promises = {} if head is None or head.promise is None else {HEAD: head.promise}
    return Speculator(target, drafters, loaded.tokenizer, promises)


def _head_drafter(loaded: LoadedModel, target: Target, head: DraftHead) -> HeadDrafter:
    if not shows_hidden(target):
        raise ModelLoadError(f"the hidden states of {loaded.id} are out of reach, and no draft head goes without them")
    part = None if head.token_ids is None else PartOfVocabulary(head.token_ids.astype(np.int64), loaded.vocab_size)
    return HeadDrafter(running_head(head), part)


def _model_drafter(loaded: LoadedModel, draft: LoadedModel, *, half_rows: bool) -> ModelDrafter:
    check_same_tokens(loaded, draft)
    target = make_target(draft.model, half_rows=half_rows)
    if draft.vocab_size != loaded.vocab_size:
        target = FittedTarget(target, num_own=draft.vocab_size, num_wanted=loaded.vocab_size)
    return ModelDrafter("model", target, draft.context_length)
