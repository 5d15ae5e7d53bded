"""How long starting takes: the server from launch to healthy, and the command line's help.

Run it with the Python that mtplx is installed for. Prints medians beside what we allow ourselves; judges nothing,
since other work on the machine slows both.
"""

import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

NUM_RUNS = 3
HEALTHY_TIMEOUT_S = 120.0
MTPLX = Path(sys.executable).with_name("mtplx")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def health(port: int) -> str:
    """What `/health` says, or "unreachable"."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return str(json.load(response)["status"])
    except urllib.error.HTTPError as error:  # 503 until the model is loaded
        return str(json.load(error)["status"])
    except OSError:
        return "unreachable"


def start_to_healthy_s() -> float:
    port = free_port()
    started = time.monotonic()
    server = subprocess.Popen([MTPLX, "serve", "--port", str(port), "--log-level", "error"])
    try:
        while (state := health(port)) != "ok":
            if state == "failed" or server.poll() is not None or time.monotonic() - started > HEALTHY_TIMEOUT_S:
                raise SystemExit(f"the server did not get healthy: {state}")
            time.sleep(0.05)
        return time.monotonic() - started
    finally:
        server.terminate()
        server.wait()


def help_s() -> float:
    started = time.monotonic()
    subprocess.run([MTPLX, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def report(what: str, measure: Callable[[], float], budget_s: float) -> None:
    times_s = [measure() for _ in range(NUM_RUNS)]
    print(f"{what:<24} {statistics.median(times_s):6.2f} s   (allowed: {budget_s} s; median of {NUM_RUNS})")


def main() -> None:
    report("mtplx --help", help_s, budget_s=0.7)
    report("start to healthy", start_to_healthy_s, budget_s=8.0)


if __name__ == "__main__":
    main()
