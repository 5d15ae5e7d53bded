"""What the system tells of a process: its memory, threads and open files."""

import subprocess
import sys
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Memory that the process holds just now."""
    if sys.platform == "linux":
        return 1024 * int(_status(pid)["VmRSS"].split()[0])
    output = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True).stdout
    return 1024 * int(output)


def num_threads(pid: int) -> int | None:
    """None where that cannot be known."""
    return int(_status(pid)["Threads"]) if sys.platform == "linux" else None


def num_open_files(pid: int) -> int | None:
    """Sockets included; None where that cannot be known."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) if sys.platform == "linux" else None


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
