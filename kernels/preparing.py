"""Which kernels this process decodes with, and making them ready."""

import logging
import sys
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn

from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.inputs import InputsChoice, inputs_here, rounded_agree, set_inputs
from mtplx.kernels.native_module import native, why_unavailable
from mtplx.kernels.processors import num_processors
from mtplx.kernels.report import KernelReport

logger = logging.getLogger(__name__)


def kernels_here(*, use_native: bool = True, threads: int | None = None, inputs: InputsChoice = "auto") -> KernelReport:
    """The kernels to decode with: native ones if wanted and available, on that many threads, one for each processor
    if None."""
    reason = why_unavailable() if use_native else "the setting native_kernels turns the native ones off"
    if reason is None:
        threads = threads or num_processors()
        return KernelReport(True, isa=native.ISA, threads=threads, inputs=inputs_here(inputs))
    return KernelReport(False, reason, is_slow=sys.platform == "linux" and mx.default_device() == mx.cpu)


def speed_up(model: nn.Module, report: KernelReport) -> KernelReport:
    """Swap the model's layers for native ones where these are active; the report, with what was done."""
    return replace(report, layers=accelerate(model)) if report.active else report


def prepare_kernels(
    *, use_native: bool = True, threads: int | None = None, inputs: InputsChoice = "auto"
) -> KernelReport:
    """As `kernels_here`, and threads and inputs are set, for the whole process; slow kernels are warned of."""
    report = kernels_here(use_native=use_native, threads=threads, inputs=inputs)
    if report.threads is not None:
        native.set_num_threads(report.threads)
        if report.inputs != "float32" and not rounded_agree(report.inputs):
            logger.error(
                "native products with %s inputs are wrong on this machine; they take float32 instead", report.inputs
            )
            report = replace(report, inputs="float32")
        set_inputs(report.inputs)
    if report.is_slow:
        logger.warning("decoding takes ten times as long as it could, or more: %s", report.reason)
    return report
