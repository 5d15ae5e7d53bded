"""When the native kernels are used, and what is said when they cannot be."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import pytest

from mtplx.kernels import native_module
from mtplx.kernels.native_module import NativeKernelsError, native, why_unavailable
from mtplx.kernels.preparing import prepare_kernels
from tests.kernels.availability import needs_native

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="there are native kernels for Linux only"),
    pytest.mark.skipif(mx.default_device() == mx.gpu, reason="native kernels are for the CPU"),
]

EXTENSION = "mtplx.kernels._native"
ROOT = Path(__file__).parents[2]


class FakeExtension(ModuleType):
    """An extension that was built for this very MLX, and does nothing; a test changes what it needs."""

    def __init__(self) -> None:
        super().__init__(EXTENSION)
        self.MLX_VERSION = mx.__version__  # type: ignore[attr-defined]
        self.ISA = "avx512"
        self.RUNS_HERE = True


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> FakeExtension:
    """Takes the place of the extension, built or not."""
    fake = FakeExtension()
    monkeypatch.setitem(sys.modules, EXTENSION, fake)
    return fake


@pytest.mark.usefixtures("extension")
def test_kernels_built_for_this_mlx_and_this_processor_are_used() -> None:
    assert why_unavailable() is None


def test_kernels_built_for_another_mlx_are_refused(extension: FakeExtension) -> None:
    extension.MLX_VERSION = "0.1.2"
    assert f"built for mlx 0.1.2, not {mx.__version__}; run " in str(why_unavailable())  # type: ignore[attr-defined]


def test_kernels_built_for_a_better_processor_are_refused(extension: FakeExtension) -> None:
    extension.RUNS_HERE = False
    assert "built for avx512, which this processor lacks; run " in str(why_unavailable())


def test_without_the_extension_the_reason_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXTENSION, None)  # type: ignore[arg-type]
    assert "not built at installation; install g++, then run " in str(why_unavailable())


def test_an_extension_that_cannot_be_loaded_is_told_with_the_loaders_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ModuleType:
        raise ImportError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(native_module.importlib, "import_module", refuse)
    assert "cannot be loaded (libgomp.so.1: cannot open shared object file); run " in str(why_unavailable())


def test_the_advice_is_to_reinstall_this_checkout_past_pips_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXTENSION, None)  # type: ignore[arg-type]
    reason = str(why_unavailable())
    assert "--no-cache-dir" in reason
    assert reason.endswith(f" --editable {ROOT}")


def test_calling_a_kernel_that_cannot_be_used_says_why(extension: FakeExtension) -> None:
    extension.MLX_VERSION = "0.1.2"
    with pytest.raises(NativeKernelsError, match=r"built for mlx 0\.1\.2"):
        native.no_such_kernel  # type: ignore[attr-defined]  # noqa: B018


def test_slow_kernels_are_reported_and_logged_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, EXTENSION, None)  # type: ignore[arg-type]
    report = prepare_kernels()
    assert (report.active, report.is_slow, report.threads) == (False, True, None)
    assert report.reason is not None
    [message] = caplog.messages
    assert message.startswith("decoding takes ten times as long as it could, or more: ")
    assert message.endswith(report.reason)


def test_kernels_that_were_turned_off_are_slow_too(caplog: pytest.LogCaptureFixture) -> None:
    report = prepare_kernels(use_native=False)
    assert (report.active, report.is_slow) == (False, True)
    assert "the setting native_kernels" in caplog.text


@needs_native
def test_native_kernels_are_reported_with_their_instructions(caplog: pytest.LogCaptureFixture) -> None:
    report = prepare_kernels()
    assert (report.active, report.reason, report.is_slow) == (True, None, False)
    assert report.isa in {"avx512", "avx2", "neon", "generic"}
    assert not caplog.messages


@needs_native
def test_threads_are_set_for_all_threads_of_the_process() -> None:
    before = native.num_threads()
    try:
        assert prepare_kernels(threads=3).threads == 3
        assert native.num_threads() == 3
    finally:
        native.set_num_threads(before)


@needs_native
def test_the_extension_is_loaded_when_it_is_first_used() -> None:
    code = (
        "import sys\n"
        "from mtplx.kernels.native_module import native\n"
        f"print({EXTENSION!r} in sys.modules, native.RUNS_HERE, {EXTENSION!r} in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "True", "True"]
