"""Greedy text is that of plain decoding, token for token, and rolled back caches are those that never drafted.

On tiny models with random weights: full attention, sliding windows past their wrap, recurrent and hybrid layers; those
that run by rows with native kernels too.
"""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from mtplx.engine.assembly import make_speculator
from mtplx.engine.cache import RowCache
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.row_target import RowTarget
from mtplx.engine.models.running import make_target
from mtplx.engine.models.sequential_cache import SequentialCache
from mtplx.engine.models.sequential_target import SequentialTarget
from mtplx.engine.models.target import Rows
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Request, SamplingParams
from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.native_module import is_available
from tests.engine.decoding import MistakenOracle, begin, decode, decode_together, step
from tests.kernels.availability import needs_native
from tests.tiny_models import CONFIGS, EOS, VOCAB_SIZE, tiny_model_folder

STOCK_BY_ROWS = ("llama", "qwen3", "gemma3_text")
NATIVE = tuple(pytest.param(f"native {kind}", marks=needs_native) for kind in STOCK_BY_ROWS)
BY_ROWS = (*STOCK_BY_ROWS, *NATIVE)
KINDS = (*CONFIGS, *NATIVE)
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


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    folder: Path = tmp_path_factory.mktemp("models")
    stock = {kind: load_model(str(tiny_model_folder(folder, kind))) for kind in CONFIGS}
    return stock | ({f"native {kind}": native_model(folder, kind) for kind in STOCK_BY_ROWS} if is_available() else {})


def native_model(folder: Path, kind: str) -> LoadedModel:
    """One that decodes with native kernels, of sizes that quantization takes everywhere."""
    loaded = load_model(str(tiny_model_folder(folder, kind, CONFIGS[kind] | {"hidden_size": 64}, seed=1)))
    nn.quantize(loaded.model, group_size=32, bits=8)
    assert accelerate(loaded.model).failed == ()
    return loaded


def request(depth: int = 0, drafter: str = "none", sampling: SamplingParams = GREEDY, max_tokens: int = 24) -> Request:
    return Request("test", PROMPT, max_tokens, sampling, depth=depth, drafter=drafter)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_runs_by_rows_and_recurrence_one_sequence_at_a_time(
    models: dict[str, LoadedModel], kind: str
) -> None:
    assert make_target(models[kind].model).way == (
        "rows" if kind.removeprefix("native ") in STOCK_BY_ROWS else "sequential"
    )


@pytest.mark.parametrize("sampling", [GREEDY, PROCESSED], ids=["plain", "processed"])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_the_same_at_every_depth_and_with_every_drafter(
    models: dict[str, LoadedModel], kind: str, sampling: SamplingParams
) -> None:
    speculator = make_speculator(models[kind], self_draft_layers=1)
    expected, _ = decode(speculator, request(sampling=sampling))
    assert len(expected) == 24
    assert len(set(expected)) > 4  # the text is not degenerate
    assert ("self" in speculator.drafters) == (kind != "gemma3n")  # whose layers share caches
    for drafter in speculator.drafters:
        for depth in (1, 3, 8):
            tokens, sequence = decode(speculator, request(depth, drafter, sampling))
            assert tokens == expected, (drafter, depth)
            if drafter == "self":
                assert sequence.speculation.num_drafted > 0


@pytest.mark.parametrize("sampling", [GREEDY, PROCESSED], ids=["plain", "processed"])
@pytest.mark.parametrize("depth", [1, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_partly_accepted_drafts_change_nothing(
    models: dict[str, LoadedModel], kind: str, depth: int, sampling: SamplingParams
) -> None:
    plain = make_speculator(models[kind])
    expected, _ = decode(plain, request(sampling=sampling, max_tokens=40))
    assert len(expected) == 40
    oracle = MistakenOracle(expected, chance=0.3, vocab_size=VOCAB_SIZE)
    speculator = Speculator(plain.target, {"oracle": oracle}, models[kind].tokenizer)
    tokens, sequence = decode(speculator, request(depth, "oracle", sampling, max_tokens=40))
    assert tokens == expected
    stats = sequence.speculation
    assert 0 < stats.num_accepted < stats.num_drafted


@pytest.mark.parametrize("kind", KINDS)
def test_after_every_round_the_cache_is_one_that_never_drafted(models: dict[str, LoadedModel], kind: str) -> None:
    plain = make_speculator(models[kind])
    expected, _ = decode(plain, request(max_tokens=24))
    oracle = MistakenOracle(expected, chance=0.3, vocab_size=VOCAB_SIZE)
    speculator = Speculator(plain.target, {"oracle": oracle}, models[kind].tokenizer)
    speculated = begin(speculator, request(5, "oracle"))
    never_drafted = begin(plain, request())
    while speculated.reason is None:
        step(speculator, speculated)
        while never_drafted.num_output < speculated.num_output:
            step(plain, never_drafted)
        assert speculated.cache.num_committed == never_drafted.cache.num_committed
        assert speculated.cache.num_uncommitted == 0
        assert_same_rows(speculated.cache, never_drafted.cache, plain)


def assert_same_rows(speculated: object, expected: object, plain: Speculator) -> None:
    """Key-value rows to the bit; recurrent states up to the rounding that running rows together brings."""
    if isinstance(speculated, RowCache) and isinstance(expected, RowCache):
        for ours, theirs in zip(speculated.layers, expected.layers, strict=True):
            visible = ours.first_visible(speculated.num_committed)
            for a, b in zip(ours.read(visible, speculated.end), theirs.read(visible, expected.end), strict=True):
                assert mx.array_equal(a, b)
        return
    assert isinstance(speculated, SequentialCache)
    assert isinstance(expected, SequentialCache)
    a, b = (plain.target.forward([Rows(cache, [9], 1)])[0] for cache in (speculated, expected))
    assert abs(a - b).max() < 1e-3 * abs(b).max()
    speculated.rollback()
    expected.rollback()


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("gemma3_text", "rows"),
        ("gemma3_text", "sequential"),
        pytest.param("native gemma3_text", "rows", marks=needs_native),
    ],
)
def test_caches_stay_exact_after_a_window_has_let_go_of_hundreds_of_rows(
    models: dict[str, LoadedModel], kind: str, way: str
) -> None:
    loaded = models[kind]
    target = make_target(loaded.model) if way == "rows" else SequentialTarget(loaded.model, loaded.model.make_cache)
    plain = Speculator(target, {}, loaded.tokenizer)
    prompt = tuple((5 + 37 * place) % 250 for place in range(250))
    expected, _ = decode(plain, Request("test", prompt, 50, GREEDY))
    oracle = MistakenOracle(expected, chance=0.3, vocab_size=VOCAB_SIZE)
    speculator = Speculator(target, {"oracle": oracle}, loaded.tokenizer)
    speculated = begin(speculator, Request("test", prompt, 50, GREEDY, depth=5, drafter="oracle"))
    never_drafted = begin(plain, Request("test", prompt, 50, GREEDY))
    while speculated.reason is None:
        step(speculator, speculated)
        while never_drafted.num_output < speculated.num_output:
            step(plain, never_drafted)
        assert_same_rows(speculated.cache, never_drafted.cache, plain)
    assert speculated.tokens[len(prompt) :] == expected
    assert speculated.speculation.num_accepted < speculated.speculation.num_drafted


@pytest.mark.parametrize("kind", ["llama", *NATIVE])
def test_sequences_that_share_a_forward_say_what_they_say_alone(models: dict[str, LoadedModel], kind: str) -> None:
    speculator = make_speculator(models[kind], self_draft_layers=1)
    requests = [
        request(),
        request(8, "self"),
        request(3, "ngram", PROCESSED, max_tokens=40),
        Request("short", (9, 8, 7), 15, SamplingParams(seed=4), depth=2, drafter="self"),
    ]
    assert speculator.target.way == "rows"
    alone = [decode(speculator, each)[0] for each in requests]
    assert decode_together(speculator, requests) == alone


@pytest.mark.parametrize("chunk", [1, 3, 5])
@pytest.mark.parametrize("kind", BY_ROWS)
def test_the_size_of_prefill_chunks_changes_nothing(models: dict[str, LoadedModel], kind: str, chunk: int) -> None:
    speculator = make_speculator(models[kind])
    assert decode(speculator, request(), chunk)[0] == decode(speculator, request())[0]


@pytest.mark.parametrize("kind", BY_ROWS)
def test_rows_have_the_same_bits_whatever_shares_their_forward(models: dict[str, LoadedModel], kind: str) -> None:
    target = make_target(models[kind].model)

    def run(*parts: list[int], beside: list[int] | None = None) -> mx.array:
        cache, other = target.new_cache(), target.new_cache()
        rows = []
        for part in parts:
            batch = [Rows(cache, part, len(part))] + ([Rows(other, beside, 1)] if beside else [])
            rows.append(mx.array(target.forward(batch)[0]))
            cache.commit(len(part))
            other.commit(other.num_uncommitted)
        return mx.concatenate(rows)

    tokens = [(7 * i) % VOCAB_SIZE for i in range(30)]
    alone = run(*([token] for token in tokens))
    assert mx.array_equal(run(tokens), alone)
    assert mx.array_equal(run(tokens[:11], tokens[11:12], tokens[12:]), alone)
    assert mx.array_equal(run(tokens[:20], tokens[20:], beside=[3, 4, 5]), alone)


def test_both_ways_of_running_a_model_agree(models: dict[str, LoadedModel]) -> None:
    """Past the wrap of the sliding window, where mlx-lm's own cache could not be rolled back."""
    model = models["gemma3_text"].model
    by_rows = make_target(model)
    sequential = SequentialTarget(model, model.make_cache)
    assert isinstance(by_rows, RowTarget)
    expected, _ = decode(Speculator(by_rows, {}, models["gemma3_text"].tokenizer), request(max_tokens=40))
    for chance in (0.0, 0.3):
        drafters = {"oracle": MistakenOracle(expected, chance, VOCAB_SIZE)}
        speculator = Speculator(sequential, drafters, models["gemma3_text"].tokenizer)
        assert decode(speculator, request(5, "oracle", max_tokens=40))[0] == expected
