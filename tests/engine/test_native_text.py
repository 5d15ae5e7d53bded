"""With native kernels the default model says what it says without them: rounding decides nothing but near-ties."""

import mlx.core as mx
import numpy as np
import pytest

from mtplx.engine.assembly import make_speculator
from mtplx.engine.models.loading import load_model
from mtplx.engine.types import Request, SamplingParams
from mtplx.kernels.preparing import prepare_kernels, speed_up
from tests.engine.decoding import decode
from tests.kernels.availability import needs_native

pytestmark = [pytest.mark.slow, needs_native]

NUM_TOKENS = 8
NEAR_TIE = 1e-3  # of the largest logit: above what rounding does to logits, below what anyone would call a preference
PROMPTS = (
    "The capital of France is",
    "Water boils at",
    "Once upon a time",
    "def fibonacci(n):",
    "import numpy as",
    "SELECT name FROM",
    "Roses are red,",
    "1, 2, 3, 4,",
    "The opposite of hot is",
    "Dear Sir or Madam,",
    "for i in range(",
    "My favourite food is",
    "In the year 1969,",
    "<html><head><title>",
    "To be, or not to",
    "Guten Tag, wie geht",
    "The sun rises in the",
    "2 + 2 =",
    "She opened the door and",
    "Photosynthesis is the process",
)


def test_greedy_text_is_the_stock_paths_but_for_near_ties() -> None:
    stock, native = load_model(None), load_model(None)
    speed_up(native.model, prepare_kernels())
    speculator = make_speculator(native)
    near_ties = []
    for text in PROMPTS:
        prompt = native.tokenizer.encode(text)
        sampling = SamplingParams(temperature=0.0)
        said, _ = decode(speculator, Request("test", tuple(prompt), NUM_TOKENS, sampling, depth=0, drafter="none"))
        assert len(said) == NUM_TOKENS or said[-1] in native.tokenizer.eos_token_ids
        # Fed with what was said, one forward tells what the stock path would have said at each place.
        rows = np.array(stock.model(mx.array([*prompt, *said[:-1]])[None])[0, len(prompt) - 1 :])
        for row, token in zip(rows, said, strict=True):
            second, first = np.argsort(row)[-2:]
            if token != first:
                assert token == second, (text, token)
                assert row[first] - row[second] < NEAR_TIE * np.abs(row).max(), (text, token)
                near_ties.append((text, token))
    assert len(near_ties) <= len(PROMPTS) * NUM_TOKENS // 50, near_ties
