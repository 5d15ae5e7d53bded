"""`python -m tests.fuzz [REQUESTS] [SEED]`: sends that many requests to servers, and tells what came back.

Most go to the letters' engine, some to the default model, many of them streams whose clients leave. Each run has a seed
of its own unless one is given; what a run finds, the same seed finds again. Exits with 1 when an answer is not as it
should be, and tells which request got it.
"""

import random
import sys
import time

from mtplx.engine.models.default_model import default_model_path
from mtplx.server.bridge import LoadEngine
from mtplx.server.loading import load_engine
from tests.fuzz.campaign import Campaign
from tests.fuzz.server import fuzzed_server
from tests.server.engines import letter_engine

REQUESTS = 10_000
DESCRIBED, REAL = 0.3, 0.03  # shares of the requests


def main(num_requests: int, seed: int) -> None:
    num_real = int(num_requests * REAL)
    print(f"{num_requests} requests, seed {seed}")
    attack(letter_engine(), "the letters' engine", num_requests - num_real, seed)
    attack(load_engine, f"the default model, {default_model_path().stem}", num_real, seed)


def attack(engine: LoadEngine, name: str, num_requests: int, seed: int) -> None:
    started_at_s = time.monotonic()
    with fuzzed_server(engine) as client:
        [model] = client.get("/v1/models").json()["data"]
        campaign = Campaign(client, model["id"], seed)
        campaign.send_described(int(num_requests * DESCRIBED))
        campaign.send_strange(num_requests - int(num_requests * DESCRIBED))
    told = ", ".join(f"{count} x {status or 'left early'}" for status, count in campaign.statuses.most_common())
    print(f"{name}: {campaign.statuses.total()} in {time.monotonic() - started_at_s:.0f} s: {told}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*given, *(REQUESTS, random.randrange(2**32))[len(given) :])
