"""Log probabilities of continuations by a plain forward of mlx-lm's model each: our kernels, but no rows, no caches.

`python -m tests.clients.scoring < PAIRS`, run in the server's environment: reads a JSON list of [context, continuation]
and writes a list of [log probability in nats, whether it is the greedy choice].
"""

import json
import sys

import mlx.core as mx
import numpy as np
from scipy.special import log_softmax

from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.kernels.preparing import prepare_kernels, speed_up


def score(loaded: LoadedModel, context: str, continuation: str) -> tuple[float, bool]:
    """The split between the two is where the context's own tokens end, as lm-eval has it."""
    encode = loaded.tokenizer.encode
    num_context = len(encode(context))
    tokens = encode(context + continuation)
    logits = loaded.model(mx.array([tokens[:-1]]))[0, num_context - 1 :]
    chosen = np.array(tokens[num_context:])[:, None]
    # In double precision: MLX's own logsumexp on a CPU is off by 1e-4.
    logprobs = log_softmax(np.array(logits.astype(mx.float32), dtype=np.float64), axis=-1)
    is_greedy = logprobs.argmax(axis=-1, keepdims=True) == chosen
    return float(np.take_along_axis(logprobs, chosen, axis=-1).sum()), bool(is_greedy.all())


if __name__ == "__main__":
    kernels = prepare_kernels(use_native=True, threads=None, inputs="float32")
    model = load_model(None)
    speed_up(model.model, kernels)
    json.dump([score(model, *pair) for pair in json.load(sys.stdin)], sys.stdout)
