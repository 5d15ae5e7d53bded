"""Each architecture of docs/models.md decodes as it says there, and rolls back to what never drafted.

With native kernels too, where they are available. The full product of drafters, depths and rules is in
test_exactness.py; here each architecture takes a part of it that has every one of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.models.running import make_target, row_type
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Acceptance, Request, SamplingParams
from mtplx.kernels.feed_forward import NativeFeedForward
from mtplx.kernels.layers import (
    NativeDense,
    NativeEmbedding,
    NativeLayerNorm,
    NativeLinear,
    NativeRMSNorm,
    NativeRoPE,
    NativeSwitchLinear,
)
from tests.engine.decoding import Depth, MistakenOracle, decode, decode_together, difference, in_step, speculating
from tests.engine.kinds import TinyModels
from tests.kernels.availability import needs_native
from tests.tiny_configs import CONFIGS, VOCAB_SIZE
from tests.tiny_models import EOS

pytestmark = pytest.mark.usefixtures("float_products")

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
GREEDY = SamplingParams(temperature=0.0, logit_bias={EOS: -100.0})  # random models would stop at any time
PROMPT = (40, 41, 42, 43, 50, 40, 41, 42, 43, 51, 40, 41)  # repeats, so that n-grams match
REQUEST = Request("test", PROMPT, 20, GREEDY)
SPECULATIONS: tuple[tuple[str, Depth, Acceptance], ...] = (
    ("ngram", 8, "rejection"),
    ("ngram", "auto", "block"),
    ("self", 1, "coupled"),
    ("self", 3, "block"),
    ("model", 8, "coupled"),
    ("model", "auto", "rejection"),
)
ROUNDING = 1e-4  # of the largest logit, in float32


@dataclass(frozen=True)
class Documented:
    """A line of the table in docs/models.md."""

    way: str
    is_exact: bool
    native: frozenset[str]


def documented() -> dict[str, Documented]:
    """The lines by architecture."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {
        name.strip("`"): Documented(way, exactness == "to the bit", frozenset(native.split(", ")))
        for name, way, exactness, native, *_ in lines
    }


TABLE = documented()


def line(kind: str) -> Documented:
    return TABLE[kind.removeprefix("native ")]


def native_kinds() -> Iterator[Any]:
    """Those that run sequentially are slow tests: what forgets there is mlx-lm's caches, native kernels or not."""
    for architecture in CONFIGS:
        slow = [pytest.mark.slow] if line(architecture).way == "sequential" else []
        yield pytest.param(f"native {architecture}", marks=[needs_native, *slow])


KINDS = pytest.mark.parametrize("kind", [*CONFIGS, *native_kinds()])


def native_parts(model: nn.Module, target: Target) -> set[str]:
    """What native kernels do for the model, in the words of docs/models.md."""
    words = {
        NativeLinear: "products",
        NativeDense: "products",
        NativeEmbedding: "products",
        NativeSwitchLinear: "experts",
        NativeRMSNorm: "norms",
        NativeLayerNorm: "norms",
        NativeRoPE: "positions",
        NativeFeedForward: "feed-forward",
    }
    parts = {words[type(module)] for module in model.modules() if type(module) in words}
    if getattr(target, "is_native", False):
        parts.add("attention")
    return {"all layers in one call"} if row_type(target) is not None else parts


def test_the_page_lists_the_architectures_that_are_tested() -> None:
    assert list(TABLE) == list(CONFIGS)


@KINDS
def test_it_runs_the_way_the_page_says(models: TinyModels, kind: str) -> None:
    assert make_target(models[kind].model).way == line(kind).way


@needs_native
@pytest.mark.parametrize("architecture", CONFIGS)
def test_native_kernels_do_what_the_page_says(models: TinyModels, architecture: str) -> None:
    model = models[f"native {architecture}"].model
    assert native_parts(model, make_target(model)) == line(architecture).native


@KINDS
def test_past_every_window_it_gives_what_mlx_lms_own_forward_gives(models: TinyModels, kind: str) -> None:
    """Further than the check at load goes: mistral3's windows, for one, are its masks', and no cache tells of them."""
    model = models[kind].model
    tokens = [(7 * i) % VOCAB_SIZE for i in range(40)]
    own = model(mx.array([tokens]), cache=make_prompt_cache(model))[0]
    given = run(make_target(model), [tokens[:11], tokens[11:12], tokens[12:]])
    assert float(mx.abs(given - own).max() / mx.abs(own).max()) <= ROUNDING


@KINDS
def test_greedy_text_is_plain_decodings_with_every_drafter(models: TinyModels, kind: str) -> None:
    speculator = models.speculator(kind)
    expected, _ = decode(speculator, REQUEST)
    assert len(expected) == 20
    assert len(set(expected)) > 4  # the text is not degenerate
    accepted = 0
    for drafter, depth, rule in SPECULATIONS:
        if drafter in speculator.drafters:
            tokens, sequence = decode(speculator, speculating(REQUEST, drafter, depth, rule))
            assert tokens == expected, (drafter, depth, rule)
            accepted += sequence.speculation.num_accepted
    assert accepted > 0


@pytest.mark.parametrize("kind", CONFIGS)
def test_it_drafts_for_itself_unless_its_layers_share_caches(models: TinyModels, kind: str) -> None:
    assert ("self" in models.speculator(kind).drafters) == (kind != "gemma3n")


@KINDS
def test_after_every_round_the_cache_is_one_that_never_drafted(models: TinyModels, kind: str) -> None:
    plain = models.speculator(kind)
    request = Request("test", PROMPT, 30, GREEDY)
    expected, _ = decode(plain, request)
    oracle = MistakenOracle(expected, chance=0.3, vocab_size=VOCAB_SIZE)
    speculator = Speculator(plain.target, {"oracle": oracle}, models[kind].tokenizer)
    allowed = 0.0 if line(kind).is_exact else ROUNDING
    for speculated, never_drafted in in_step(speculator, speculating(request, "oracle", 5), plain):
        assert difference(plain.target, speculated.cache, never_drafted.cache) <= allowed
    assert speculated.tokens[len(PROMPT) :] == expected
    assert 0 < speculated.speculation.num_accepted < speculated.speculation.num_drafted


@KINDS
def test_sequences_say_beside_others_what_they_say_alone(models: TinyModels, kind: str) -> None:
    speculator = models.speculator(kind)
    requests = [
        REQUEST,
        speculating(REQUEST, "model", 3, "block"),
        speculating(Request("longer", PROMPT, 30, GREEDY), "ngram", 3),
        speculating(Request("seeded", (9, 8, 7), 15, SamplingParams(seed=4)), "model", 2, "coupled"),
    ]
    assert decode_together(speculator, requests) == [decode(speculator, each)[0] for each in requests]


@KINDS
def test_rows_have_the_same_bits_whatever_shares_their_forward(models: TinyModels, kind: str) -> None:
    """Or are the same up to rounding, where the page says no more."""
    target = make_target(models[kind].model)
    tokens = [(11 * i) % VOCAB_SIZE for i in range(40)]  # with no tie between experts, which rounding may tip over
    alone = run(target, [[token] for token in tokens])
    for parts, beside in (
        ([tokens], []),
        ([tokens[:11], tokens[11:12], tokens[12:]], []),
        ([tokens[:35], tokens[35:]], [3, 4, 5]),
    ):
        furthest = float(mx.abs(run(target, parts, beside) - alone).max() / mx.abs(alone).max())
        assert furthest <= (0.0 if line(kind).is_exact else ROUNDING)


def run(target: Target, parts: Sequence[list[int]], beside: Sequence[int] = ()) -> mx.array:
    """Logits [T, V] of a text forwarded part by part, with other rows beside each."""
    cache, other = target.new_cache(), target.new_cache()
    rows = []
    for part in parts:
        batch = [Rows(cache, part, len(part))] + ([Rows(other, beside, 1)] if beside else [])
        rows.append(mx.array(target.forward(batch)[0]))
        cache.commit(len(part))
        other.commit(other.num_uncommitted)
    return mx.concatenate(rows)
