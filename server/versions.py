"""The versions of what answers: the project and what it computes with."""

from functools import cache
from importlib import metadata

import mtplx


@cache
def versions() -> dict[str, str]:
    """Version by package name."""
    return {"mtplx": mtplx.__version__, **{name: metadata.version(name) for name in ("mlx", "mlx-lm")}}
