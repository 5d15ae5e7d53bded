"""Puts the parts of an engine together for a loaded model. Knows which parts there are; does none of their work."""

import logging

import mlx.core as mx

from mtplx.engine.drafters.base import Drafter
from mtplx.engine.drafters.layer_skip import NoSelfDrafterError, self_drafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.running import make_target
from mtplx.engine.speculative import Speculator
from mtplx.kernels.report import KernelReport

logger = logging.getLogger(__name__)


def default_prefill_chunk(kernels: KernelReport) -> int:
    """Rows of a prompt that one step forwards: on a GPU enough to fill it, on a CPU few enough to let others in."""
    if mx.default_device() == mx.gpu:
        return 512
    return 64 if kernels.active else 16


def make_speculator(loaded: LoadedModel, *, self_draft_layers: int | None = None) -> Speculator:
    """The rounds of a model with all drafters it allows. `self_draft_layers` None lets the engine choose."""
    target = make_target(loaded.model)
    drafters: dict[str, Drafter] = {"ngram": NgramDrafter()}
    try:
        drafters["self"] = self_drafter(loaded.model, target, self_draft_layers)
    except NoSelfDrafterError as reason:
        logger.warning("the drafter 'self' is not available for this model: %s", reason)
    return Speculator(target, drafters, loaded.tokenizer)
