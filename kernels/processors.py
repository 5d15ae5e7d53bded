"""The processors this process may use. Knows Linux's ways to restrict them."""

import math
import os
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def num_processors(cpu_max: Path = _CPU_MAX) -> int:
    """Processors that a thread each can keep busy: those we may run on, or the share of them a container gets.

    `cpu_max` holds "quota period" or "max period" (Linux, cgroup v2); more threads than quota/period would make all
    of them wait for each other.
    """
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else min(allowed, math.ceil(int(quota) / int(period)))
