"""Text is plain decoding's, token for token, with every drafter, at every depth and under every acceptance rule.

The full product, on tiny models of three kinds: full attention, sliding windows past their wrap, recurrent layers; with
native kernels too, where they run by rows. test_architectures.py has a part of it for each architecture.
"""

from itertools import cycle

import pytest

from mtplx.engine.models.row_target import RowTarget
from mtplx.engine.models.running import make_target
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Request, SamplingParams
from tests.engine.decoding import RULES, Depth, MistakenOracle, decode, difference, in_step, speculating
from tests.engine.kinds import TinyModels
from tests.kernels.availability import needs_native
from tests.tiny_configs import VOCAB_SIZE
from tests.tiny_models import EOS

NATIVE = [pytest.param(f"native {kind}", marks=needs_native) for kind in ("llama", "gemma3_text")]
KINDS = pytest.mark.parametrize("kind", ["llama", "gemma3_text", "mamba2", *NATIVE])
DRAFTERS = ("ngram", "self", "model")
DEPTHS: tuple[Depth, ...] = (1, 3, 8, "auto")
PROMPT = (40, 41, 42, 43, 50, 40, 41, 42, 43, 51, 40, 41)  # repeats, so that n-grams match
NEVER_ENDING = {EOS: -100.0}  # random models would stop at any time
GREEDY = SamplingParams(temperature=0.0, logit_bias=NEVER_ENDING)
PROCESSED = SamplingParams(
    temperature=0.0,
    repetition_penalty=1.3,
    presence_penalty=0.5,
    frequency_penalty=-0.4,
    logit_bias={40: 3.0, 41: 2.0, 7: -100.0} | NEVER_ENDING,
)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, PROCESSED], ids=["plain", "processed"])


@pytest.mark.slow
@SAMPLINGS
@KINDS
def test_greedy_text_is_the_same_in_every_cell(models: TinyModels, kind: str, sampling: SamplingParams) -> None:
    speculator = models.speculator(kind)
    request = Request("test", PROMPT, 16, sampling)
    expected, _ = decode(speculator, request)
    assert len(expected) == 16
    assert len(set(expected)) > 4  # the text is not degenerate
    for drafter in DRAFTERS:
        num_drafted = 0
        for depth in DEPTHS:
            for rule in RULES:
                tokens, sequence = decode(speculator, speculating(request, drafter, depth, rule))
                assert tokens == expected, (drafter, depth, rule)
                num_drafted += sequence.speculation.num_drafted
        assert num_drafted > 0, drafter


@KINDS
def test_coupled_text_of_a_seed_is_the_same_in_every_cell(models: TinyModels, kind: str) -> None:
    speculator = models.speculator(kind)
    sampling = SamplingParams(temperature=0.8, top_p=0.95, seed=11, logit_bias=NEVER_ENDING)
    request = Request("test", PROMPT, 20, sampling, acceptance="coupled")
    expected, _ = decode(speculator, request)
    assert len(expected) == 20
    assert expected != decode(speculator, Request("test", PROMPT, 20, GREEDY))[0]
    num_accepted = 0
    for drafter in DRAFTERS:
        for depth in DEPTHS:
            tokens, sequence = decode(speculator, speculating(request, drafter, depth, "coupled"))
            assert tokens == expected, (drafter, depth)
            num_accepted += sequence.speculation.num_accepted
    assert num_accepted > 0


@SAMPLINGS
@KINDS
def test_partly_accepted_drafts_change_nothing(models: TinyModels, kind: str, sampling: SamplingParams) -> None:
    plain = models.speculator(kind)
    request = Request("test", PROMPT, 40, sampling)
    expected, _ = decode(plain, request)
    for depth, rule in zip(DEPTHS, cycle(RULES), strict=False):
        oracle = MistakenOracle(expected, chance=0.3, vocab_size=VOCAB_SIZE)
        speculator = Speculator(plain.target, {"oracle": oracle}, models[kind].tokenizer)
        tokens, sequence = decode(speculator, speculating(request, "oracle", depth, rule))
        assert tokens == expected, (depth, rule)
        if depth != "auto":
            assert 0 < sequence.speculation.num_accepted < sequence.speculation.num_drafted


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("gemma3_text", "rows"),
        ("gemma3_text", "sequential"),
        pytest.param("native gemma3_text", "rows", marks=needs_native),
    ],
)
def test_caches_stay_exact_after_a_window_has_let_go_of_hundreds_of_rows(
    models: TinyModels, kind: str, way: str
) -> None:
    loaded = models[kind]
    target = make_target(loaded.model) if way == "rows" else SequentialTarget(loaded.model, loaded.model.make_cache)
    plain = Speculator(target, {}, loaded.tokenizer)
    prompt = tuple((5 + 37 * place) % 250 for place in range(250))
    request = Request("test", prompt, 50, GREEDY)
    expected, _ = decode(plain, request)
    oracle = MistakenOracle(expected, chance=0.3, vocab_size=VOCAB_SIZE)
    speculator = Speculator(target, {"oracle": oracle}, loaded.tokenizer)
    for speculated, never_drafted in in_step(speculator, speculating(request, "oracle", 5), plain):
        assert difference(target, speculated.cache, never_drafted.cache) == 0.0
    assert speculated.tokens[len(prompt) :] == expected
    assert speculated.speculation.num_accepted < speculated.speculation.num_drafted


def test_both_ways_of_running_a_model_agree(models: TinyModels) -> None:
    """Past the wrap of the sliding window, where mlx-lm's own cache could not be rolled back."""
    loaded = models["gemma3_text"]
    by_rows = make_target(loaded.model)
    sequential = SequentialTarget(loaded.model, loaded.model.make_cache)
    assert isinstance(by_rows, RowTarget)
    request = Request("test", PROMPT, 40, GREEDY)
    expected, _ = decode(Speculator(by_rows, {}, loaded.tokenizer), request)
    for chance in (0.0, 0.3):
        drafters = {"oracle": MistakenOracle(expected, chance, VOCAB_SIZE)}
        speculator = Speculator(sequential, drafters, loaded.tokenizer)
        assert decode(speculator, speculating(request, "oracle", 5))[0] == expected
