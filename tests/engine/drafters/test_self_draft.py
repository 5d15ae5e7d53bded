"""The self drafter is a lighter copy of the target; whichever it is, greedy text stays that of plain decoding."""

import logging
from functools import cache

import mlx.nn as nn
import numpy as np
import pytest

from mtplx.engine.drafters import self_draft
from mtplx.engine.drafters.self_draft import Judgement, Lightening, NoSelfDrafterError, self_drafter
from mtplx.engine.models.running import make_target
from mtplx.engine.models.target import Target
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Request, SamplingParams
from mtplx.kernels.accelerate import accelerate
from tests.engine.decoding import decode
from tests.fakes import ByteTokenizer
from tests.kernels.availability import needs_native
from tests.tiny_configs import CONFIGS, VOCAB_SIZE
from tests.tiny_models import tiny_model

TOKENIZER = ByteTokenizer()
GREEDY = SamplingParams(temperature=0.0, logit_bias=dict.fromkeys(range(256, VOCAB_SIZE), -100.0))  # bytes alone
PLAIN = Request("test", (40, 41, 42, 43, 50), 16, GREEDY)
SPECULATIVE = Request("test", (40, 41, 42, 43, 50), 16, GREEDY, depth=3, drafter="self")


@pytest.fixture(autouse=True)
def short_passage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are many tokens."""
    monkeypatch.setattr(self_draft, "PASSAGE", self_draft.PASSAGE[:48])


@cache
def model(kind: str) -> nn.Module:
    """Of six layers; the native one has 8 bits."""
    *native, architecture = kind.split()
    made = tiny_model(architecture, CONFIGS[architecture] | {"num_hidden_layers": 6})
    if native:
        nn.quantize(made, group_size=32, bits=8)
        assert accelerate(made).failed == ()
    return made


def quantized(bits: int) -> nn.Module:
    made = tiny_model("qwen3", CONFIGS["qwen3"] | {"num_hidden_layers": 6})
    nn.quantize(made, group_size=32, bits=bits)
    return made


@pytest.mark.parametrize(
    "options",
    [{"num_layers": 3}, {"bits": 3}, {"num_layers": 4, "bits": 4}, {}],
    ids=["fewer layers", "fewer bits", "both", "usual"],
)
@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "mamba2", pytest.param("native qwen3", marks=needs_native)])
def test_greedy_text_is_that_of_plain_decoding(kind: str, options: dict[str, int]) -> None:
    whole = model(kind)
    target = make_target(whole)
    rounds = Speculator(target, {"self": self_drafter(whole, target, TOKENIZER, **options)}, TOKENIZER)
    expected, _ = decode(rounds, PLAIN)
    tokens, sequence = decode(rounds, SPECULATIVE)
    assert tokens == expected
    assert sequence.speculation.num_drafted > 12


@needs_native
def test_greedy_text_is_the_same_whatever_is_measured() -> None:
    whole = model("native qwen3")
    target = make_target(whole)
    rounds = Speculator(target, {"self": self_drafter(whole, target, TOKENIZER, measure=True)}, TOKENIZER)
    tokens, sequence = decode(rounds, SPECULATIVE)
    assert tokens == decode(rounds, PLAIN)[0]
    assert sequence.speculation.num_drafted > 12


def test_all_layers_and_all_bits_are_always_accepted() -> None:
    whole = model("qwen3")
    target = make_target(whole)
    rounds = Speculator(target, {"self": self_drafter(whole, target, TOKENIZER, num_layers=6)}, TOKENIZER)
    _, sequence = decode(rounds, SPECULATIVE)
    assert sequence.speculation.num_accepted == sequence.speculation.num_drafted == 12


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_layers": 7}, "7 layers are asked of a model that has 6"),
        ({"bits": 7}, "7 bits are asked; weights are held in 2, 3, 4, 5, 6, 8"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(options: dict[str, int], reason: str) -> None:
    whole = model("qwen3")
    with pytest.raises(NoSelfDrafterError, match=reason):
        self_drafter(whole, make_target(whole), TOKENIZER, **options)


def test_a_model_of_few_bits_has_no_copy_of_as_many() -> None:
    whole = quantized(4)
    with pytest.raises(NoSelfDrafterError, match="no product of it has more than 4 bits"):
        self_drafter(whole, make_target(whole), TOKENIZER, bits=4)


# ---- the choice -----------------------------------------------------------------------------------------------


def test_the_expected_speedup_is_that_of_the_best_depth() -> None:
    never = Judgement(agreement=0.0, cost=0.5, row_cost=0.25)
    assert never.speedup == pytest.approx(1 / 1.75)  # at depth 1
    half = Judgement(agreement=0.5, cost=0.125, row_cost=0.0)
    assert half.speedup == pytest.approx(1.75 / 1.25)  # at depth 2; at 1 it is 1.5/1.125, at 3 1.875/1.375
    always = Judgement(agreement=1.0, cost=0.1, row_cost=0.1)
    assert always.speedup == pytest.approx(9 / 2.6)  # at the largest depth looked at


@pytest.mark.parametrize(("bits", "tries_fewer"), [(4, False), (5, False), (6, True), (8, True), (None, True)])
def test_fewer_bits_are_tried_where_there_are_many_more(bits: int | None, tries_fewer: bool) -> None:
    candidates = list(self_draft._candidates(model("qwen3") if bits is None else quantized(bits)))
    assert (Lightening(bits=4) in candidates) == tries_fewer
    assert candidates[0] == Lightening(range(3, 4))


def measured(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, row_s: dict[str, float]) -> list[str]:
    """What is logged when a row takes that many seconds, by what is left out; the target's is that of ""."""
    whole = model("qwen3")
    target = make_target(whole)
    names = {id(target): ""}
    lighter = self_draft._lighter

    def named(whole: nn.Module, like: object, chosen: Lightening) -> object:
        copy = lighter(whole, target, chosen)
        names[id(copy)] = str(chosen)
        return copy

    monkeypatch.setattr(self_draft, "_lighter", named)
    monkeypatch.setattr(self_draft, "_fastest_s", lambda model, num_rows: row_s.get(names[id(model)], 1.0))
    with caplog.at_level(logging.INFO):
        self_drafter(whole, target, TOKENIZER, measure=True)
    return [record.message for record in caplog.records if "'self'" in record.message]


def test_the_copy_with_the_most_to_expect_is_taken(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheap = {"skips layers 1 to 3": 0.0001, "has all layers, with 4 bits": 0.0001}
    [message] = measured(caplog, monkeypatch, {"": 0.01} | cheap)
    assert "has all layers, with 4 bits" in message  # as cheap, and closer to the model
    assert "does not pay" not in message


def test_the_best_copy_is_taken_even_if_it_does_not_pay_and_that_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    [message] = measured(caplog, monkeypatch, {"": 0.01, "has all layers, with 4 bits": 0.02})
    assert "has all layers, with 4 bits" in message
    assert message.endswith("which does not pay")


def test_longer_runs_are_not_tried_where_a_shorter_one_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model("qwen3")
    target = make_target(whole)
    tried: list[str] = []
    lighter = self_draft._lighter

    def noted(whole: nn.Module, like: Target, chosen: Lightening) -> Target:
        tried.append(str(chosen))
        return lighter(whole, like, chosen)

    said = iter([1, 0, 1, 1, 1, 1])  # by the target; what skips layers up to 3 does not agree, the others do
    monkeypatch.setattr(self_draft, "_likeliest", lambda copy, tokens: np.full(8, next(said)))
    monkeypatch.setattr(self_draft, "_lighter", noted)
    monkeypatch.setattr(self_draft, "_fastest_s", lambda copy, num_rows: 0.01)
    self_drafter(whole, target, TOKENIZER, measure=True)
    assert tried == [
        "skips layers 3 to 3",
        "skips layers 4 to 4",
        "skips layers 3 to 4",
        "skips layers 2 to 4",
        "has all layers, with 4 bits",
    ]


def test_a_slow_model_is_not_measured(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    [message] = measured(caplog, monkeypatch, {"": 2.0})
    assert message == "the drafter 'self' skips layers 3 to 3, unmeasured: a row of the model takes 2.00 s"
