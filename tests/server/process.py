"""A server in a process of its own, for tests of signals: `python -m tests.server.process PACE_S LOAD_S GRACE_S`."""

import sys
import time

from mtplx.configs.settings import Settings
from mtplx.server.bridge import LoadedEngine
from mtplx.server.running import run_server
from tests.server.engines import letter_engine


def main(pace_s: float, load_s: float, grace_s: float) -> None:
    def load_engine(settings: Settings) -> LoadedEngine:
        time.sleep(load_s)
        return letter_engine(pace_s)(settings)

    run_server(Settings(port=0, shutdown_grace_s=grace_s), load_engine)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
