"""What an installation does about the native kernels where they cannot be built, or are not wanted."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are native kernels for Linux only")


def build(into: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "setup.py", "build_ext", f"--build-lib={into}", f"--build-temp={into}/temp"]
    environment = {**os.environ, "MTPLX_NATIVE": "", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_an_installation_goes_on_when_compiling_fails_and_says_so(tmp_path: Path) -> None:
    result = build(tmp_path, CXX="false")
    assert result.returncode == 0
    assert 'building extension "mtplx.kernels._native" failed: false -std=c++20' in result.stdout + result.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_an_extension_from_an_earlier_build_does_not_pass_for_one_that_failed(tmp_path: Path) -> None:
    earlier = tmp_path / "mtplx" / "kernels" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    build(tmp_path, CXX="false")
    assert not earlier.exists()


def test_an_installation_that_needs_the_kernels_fails_without_them(tmp_path: Path) -> None:
    assert build(tmp_path, CXX="false", MTPLX_NATIVE="1").returncode != 0


def test_nothing_is_compiled_where_kernels_are_not_wanted(tmp_path: Path) -> None:
    assert build(tmp_path, CXX="false", MTPLX_NATIVE="0").returncode == 0
    assert not list(tmp_path.iterdir())
