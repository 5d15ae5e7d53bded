"""Exact speculative decoding on MLX: the public names, each loaded when it is first asked for.

Importing `mtplx` loads no model code, no MLX and no server; a name brings in only what it stands on.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtplx.engine.acceptance import acceptance_probability, speculative_output_marginal, verify_one_token
    from mtplx.engine.drafters.base import generate_draft
    from mtplx.engine.sampling import sample_from_distribution
    from mtplx.engine.session import EngineSession, GenerationConfig

__version__ = "0.1.0"

__all__ = [
    "EngineSession",
    "GenerationConfig",
    "__version__",
    "acceptance_probability",
    "generate_draft",
    "sample_from_distribution",
    "speculative_output_marginal",
    "verify_one_token",
]

_HOMES = {
    "EngineSession": "mtplx.engine.session",
    "GenerationConfig": "mtplx.engine.session",
    "acceptance_probability": "mtplx.engine.acceptance",
    "generate_draft": "mtplx.engine.drafters.base",
    "sample_from_distribution": "mtplx.engine.sampling",
    "speculative_output_marginal": "mtplx.engine.acceptance",
    "verify_one_token": "mtplx.engine.acceptance",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
