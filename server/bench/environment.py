"""What a measurement was made with: model, kernels, versions and machine. Knows where each is found out."""

import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from mtplx.engine.session import EngineSession
from mtplx.kernels.preparing import kernels_here
from mtplx.kernels.processors import num_processors
from mtplx.server.versions import versions

_CPU_INFO = Path("/proc/cpuinfo")


def environment(session: EngineSession) -> Mapping[str, object]:
    """Of an open session, as JSON can hold it."""
    model, config = session.model, session.config
    kernels = kernels_here(use_native=config.native_kernels, threads=config.threads, inputs=config.activations)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model.id,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "kernels": str(kernels),
        "threads": kernels.threads,
        "versions": {**versions(), "numpy": metadata.version("numpy"), "python": platform.python_version()},
        "cpu": cpu_name(),
        "processors": num_processors(),
        "platform": platform.platform(),
    }


def cpu_name() -> str:
    """As the machine calls its processor, or just the architecture where it does not say."""
    if _CPU_INFO.exists():
        names = [line.partition(":")[2].strip() for line in _CPU_INFO.read_text().splitlines() if "model name" in line]
        return names[0] if names else platform.machine()
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return platform.machine()
