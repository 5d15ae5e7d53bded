"""How many threads are worth having."""

import os
from pathlib import Path

import pytest

from mtplx.kernels.processors import num_processors

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux's ways")


@pytest.fixture
def cpu_max(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a container's share stands, on a machine of eight processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    return tmp_path / "cpu.max"


def test_every_processor_counts_that_the_process_may_run_on(cpu_max: Path) -> None:
    assert num_processors(cpu_max) == 8


@pytest.mark.parametrize(
    ("share", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_container_counts_its_share_rounded_up(cpu_max: Path, share: str, expected: int) -> None:
    cpu_max.write_text(share + "\n")
    assert num_processors(cpu_max) == expected
