"""Under `coupled` one seed gives one text, at every depth and with every drafter, plain decoding included."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mtplx.engine.assembly import make_speculator
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.models.loading import load_model
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import FORCED, Request, SamplingParams
from mtplx.kernels.preparing import prepare_kernels, speed_up
from tests.engine.decoding import MistakenOracle, decode
from tests.fakes import ByteTokenizer, TabularTarget
from tests.kernels.availability import needs_native
from tests.tiny_models import EOS, tiny_model_folder

DEPTHS = (1, 3, 8)
PROMPT = (40, 41, 42, 43, 50, 40, 41, 42, 43, 51, 40, 41)  # repeats, so that n-grams match
NEVER_ENDING = {EOS: -100.0}  # random models would stop at any time


def request(prompt: tuple[int, ...], max_tokens: int, sampling: SamplingParams) -> Request:
    return Request("coupled", prompt, max_tokens, sampling, acceptance="coupled")


def accepted_where_texts_agree(speculator: Speculator, plain: Request) -> dict[str, int]:
    """Decodes the request with every drafter and depth, all of which must say the same; how much each got accepted."""
    expected, _ = decode(speculator, plain)
    accepted = dict.fromkeys(speculator.drafters.keys() - {FORCED}, 0)  # no grammar forces anything
    for drafter in accepted:
        for depth in DEPTHS:
            tokens, sequence = decode(speculator, replace(plain, drafter=drafter, depth=depth))
            assert tokens == expected, (drafter, depth)
            accepted[drafter] += sequence.speculation.num_accepted
    return accepted


def test_on_a_table_a_seeds_text_is_that_of_plain_decoding() -> None:
    target = TabularTarget(seed=1)
    drafters = {"like it": ModelDrafter("like it", target), "other": ModelDrafter("other", TabularTarget(seed=2))}
    speculator = Speculator(target, {**drafters, "ngram": NgramDrafter()}, ByteTokenizer())
    texts = set()
    for seed in range(10):
        plain = request((0, 1, 2, 0, 1), 24, SamplingParams(1.2, top_p=0.9, presence_penalty=0.5, seed=seed))
        accepted = accepted_where_texts_agree(speculator, plain)
        assert accepted["like it"] > accepted["other"] > 0
        texts.add(tuple(decode(speculator, plain)[0]))
    assert len(texts) == 10


def test_a_drafter_like_the_target_is_accepted_whole_for_it_shares_the_noise() -> None:
    target = TabularTarget(seed=1)
    speculator = Speculator(target, {"like it": ModelDrafter("like it", target)}, ByteTokenizer())
    for seed in range(10):
        asked = replace(request((0, 1, 2), 21, SamplingParams(1.5, seed=seed)), drafter="like it", depth=4)
        _, sequence = decode(speculator, asked)
        assert sequence.speculation.num_accepted == sequence.speculation.num_drafted == 16


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_on_tiny_models_a_seeds_text_is_that_of_plain_decoding(kind: str, tmp_path: Path) -> None:
    speculator = make_speculator(load_model(str(tiny_model_folder(tmp_path, kind))), self_draft_layers=1)
    for seed in range(2):
        sampling = SamplingParams(repetition_penalty=1.2, logit_bias=NEVER_ENDING, seed=seed)
        accepted_where_texts_agree(speculator, request(PROMPT, 24, sampling))


@pytest.mark.slow
@needs_native
def test_on_the_default_model_a_seeds_text_is_that_of_plain_decoding() -> None:
    loaded = load_model(None)
    speed_up(loaded.model, prepare_kernels())
    speculator = make_speculator(loaded)
    prompt = tuple(loaded.tokenizer.encode("def add(a, b):\n    return a + b\n\n\ndef add(a, b, c):\n    return"))
    accepted: Counter[str] = Counter()
    for seed in range(2):
        plain = request(prompt, 40, SamplingParams(0.8, seed=seed))
        accepted.update(accepted_where_texts_agree(speculator, plain))
        oracle = MistakenOracle(decode(speculator, plain)[0], chance=0.25, vocab_size=49152)
        guided = Speculator(speculator.target, {"oracle": oracle}, loaded.tokenizer)
        accepted.update(accepted_where_texts_agree(guided, plain))
    assert min(accepted.values()) > 0, accepted
