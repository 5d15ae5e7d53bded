"""Log probabilities of continuations by one plain forward of mlx-lm's model, without engine and server.

`python -m tests.clients.scoring < PAIRS`, run in the server's environment: reads a JSON list of [context, continuation]
and writes a list of [log probability in nats, whether it is the greedy choice].
"""

import json
import sys

import mlx.core as mx

from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model


def score(loaded: LoadedModel, context: str, continuation: str) -> tuple[float, bool]:
    """The split between the two is where the context's own tokens end, as lm-eval has it."""
    encode = loaded.tokenizer.encode
    num_context = len(encode(context))
    tokens = encode(context + continuation)
    logits = loaded.model(mx.array([tokens[:-1]]))[0, num_context - 1 :].astype(mx.float32)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = mx.array(tokens[num_context:])
    total = mx.take_along_axis(logprobs, chosen[:, None], axis=-1).sum()
    return total.item(), bool((logits.argmax(axis=-1) == chosen).all().item())


if __name__ == "__main__":
    model = load_model(None)
    json.dump([score(model, *pair) for pair in json.load(sys.stdin)], sys.stdout)
