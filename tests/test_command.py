"""`mtplx` as a process: Ctrl-C from the first moment on, and the script of a checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INTERRUPTED_AT_IMPORT = """
import runpy, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            raise KeyboardInterrupt

at, sys.argv[1:] = sys.argv[1], ["serve", "--port=0"]
sys.meta_path.insert(0, CtrlC())
runpy.run_module("mtplx", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["mtplx.server.cli", "mtplx.configs.settings", "mtplx.server.running", "uvicorn"])
def test_ctrl_c_during_an_import_ends_quietly(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_IMPORT, module], cwd=ROOT, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "\n", "")


def test_the_script_of_a_checkout_without_what_it_needs_says_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "mtplx"
    script.parent.mkdir()
    shutil.copy(ROOT / "bin" / "mtplx", script)
    ended = subprocess.run([script, "--help"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert (ended.returncode, ended.stderr, ended.stdout) == (1, "mtplx: run 'make setup' first\n", "")


def test_the_script_of_a_checkout_runs_the_python_of_its_environment() -> None:
    ended = subprocess.run([ROOT / "bin" / "mtplx", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("mtplx ")
