"""Rotary position scaling as a GGUF file states it, in mlx-lm's words. Knows no other setting and no weights.

mlx-lm's words are those of `mlx_lm.models.rope_utils.initialize_rope`.
"""

import mlx.core as mx
import numpy as np

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf_header import GgufHeader

# Llama 3.1 to 3.3 were all trained with these (arXiv 2407.21783); GGUF keeps only the resulting factors.
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT = 1.0, 4.0, 8192
YARN_TUNING = ("attn_factor", "yarn_log_multiplier", "yarn_ext_factor", "yarn_attn_factor")

RopeScaling = dict[str, float | int | str]


def rope_scaling(header: GgufHeader, architecture: str, factors: mx.array | None) -> RopeScaling | None:
    """mlx-lm's `rope_scaling` setting, None for no scaling.

    `factors` [head size / 2] divide the frequencies one by one, None when the file holds none. Raises ModelLoadError
    for a scaling that mlx-lm can't express.
    """
    if factors is not None:
        return _from_factors(header, architecture, factors)
    prefix = f"{architecture}.rope.scaling."
    kind = header.get(prefix + "type", "none")
    if kind == "none":
        return None
    factor = header.require(prefix + "factor", float)
    if kind == "linear":
        return {"type": "linear", "factor": factor}
    if kind == "yarn":
        return _yarn(header, prefix, factor)
    raise ModelLoadError(f"{header.path} scales rotary positions by '{kind}'; supported are linear, yarn and llama3")


def _yarn(header: GgufHeader, prefix: str, factor: float) -> RopeScaling:
    for name in YARN_TUNING:
        if prefix + name in header.metadata:
            raise ModelLoadError(f"{header.path} tunes yarn by '{prefix + name}', which isn't supported")
    return {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": header.require(prefix + "original_context_length", int),
        "beta_fast": header.get(prefix + "yarn_beta_fast", 32.0),
        "beta_slow": header.get(prefix + "yarn_beta_slow", 1.0),
    }


def _from_factors(header: GgufHeader, architecture: str, factors: mx.array) -> RopeScaling:
    """The llama3 scaling that has these factors, if there is one."""
    from mlx_lm.models.rope_utils import Llama3RoPE

    num_dims = 2 * factors.size
    base = header.get(f"{architecture}.rope.freq_base", 10000.0)
    scaling: RopeScaling = {
        "type": "llama3",
        "factor": float(np.array(factors).max()),
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT,
    }
    unscaled = base ** (mx.arange(0, num_dims, 2) / num_dims)
    expected = Llama3RoPE(num_dims, base=base, scaling_config=scaling)._freqs / unscaled
    if not mx.allclose(expected, factors.astype(mx.float32), rtol=1e-3):
        raise ModelLoadError(f"{header.path} scales rotary positions by 'rope_freqs.weight' unlike llama3; unsupported")
    return scaling
