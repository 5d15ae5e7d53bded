"""The native extension as the other modules see it: `native`, and why it cannot be used, if so.

Knows the extension as a file that may be missing or made for something else; knows no kernel.
"""

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx  # before the extension, which needs libmlx and cannot find it by itself

_EXTENSION = "mtplx.kernels._native"
_CHECKOUT = Path(__file__).resolve().parents[1]


class NativeKernelsError(ImportError):
    """The native kernels are called where they cannot be used. The message says why, and what to do."""


def why_unavailable() -> str | None:
    """What keeps the native kernels from being used here, and what to do about it. None: nothing does."""
    if mx.default_device() == mx.gpu:
        return "MLX has kernels of its own for this GPU"
    if sys.platform != "linux":
        return "there are native kernels for Linux only"
    try:
        extension = importlib.import_module(_EXTENSION)
    except ModuleNotFoundError:
        return f"the native kernels were not built at installation; install g++, then {_reinstall()}"
    except ImportError as error:
        return f"the native kernels cannot be loaded ({error}); {_reinstall()}"
    version = mx.__version__  # type: ignore[attr-defined]
    if version != extension.MLX_VERSION:
        return f"the native kernels were built for mlx {extension.MLX_VERSION}, not {version}; {_reinstall()}"
    if not extension.RUNS_HERE:
        return f"the native kernels were built for {extension.ISA}, which this processor lacks; {_reinstall()}"
    return None


@cache
def is_available() -> bool:
    """Whether the native kernels can be used: asked once, since functions ask it at every call."""
    return why_unavailable() is None


def _reinstall() -> str:
    is_checkout = (_CHECKOUT / "setup.py").exists()
    source = f"--editable {_CHECKOUT}" if is_checkout else "<what mtplx was installed from>"
    # Without the cache: pip keeps what it once built, and would install the very same again.
    return f"run {sys.executable} -m pip install --force-reinstall --no-deps --no-cache-dir {source}"


class _WhenUsed:
    """The extension, loaded when a function of it is first asked for: without it, its importers can be imported."""

    def __getattr__(self, name: str) -> Any:
        reason = why_unavailable()
        if reason is not None:
            raise NativeKernelsError(reason)
        value = getattr(importlib.import_module(_EXTENSION), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    from mtplx.kernels import _native

    native = _native
else:
    native = _WhenUsed()
