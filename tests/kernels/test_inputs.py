"""What products with quantized weights take in: whole numbers of 8, 16 and 24 bits give the reference's values, and
rows whose bits are their own."""

import logging
from collections.abc import Iterator

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mtplx.engine.models.row_target import RowTarget
from mtplx.engine.models.running import make_target, row_type
from mtplx.kernels import preparing
from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.gather import gathered_linear, tile_experts
from mtplx.kernels.inputs import Inputs, float_inputs, inputs_here, reference_rounded, rounded_agree, set_inputs
from mtplx.kernels.linear import BITS, GROUP_SIZES, quantized_linear, reference_quantized_linear, tile
from mtplx.kernels.native_module import native
from mtplx.kernels.preparing import prepare_kernels
from tests.kernels.availability import needs_native
from tests.kernels.forwards import run
from tests.kernels.rows import as_floats, assert_rows_are_exact, random
from tests.tiny_configs import CONFIGS
from tests.tiny_models import tiny_model

pytestmark = needs_native

TOLERANCE = 5e-6  # of the largest value: whole numbers are summed exactly, groups in another order


# By the bytes of whole numbers: how far such rounding changes a product, as a share of the largest one.
CHANGES = {1: (1e-4, 3e-2), 2: (1e-6, 3e-4), 3: (0.0, 3e-6)}


@pytest.fixture(autouse=True, params=CHANGES, ids=lambda num_bytes: f"{8 * num_bytes} bits")
def num_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    native.set_input_bytes(request.param)
    yield request.param
    set_inputs("float32")


def assert_close(given: mx.array, expected: mx.array, tolerance: float = TOLERANCE) -> None:
    assert given.shape == expected.shape
    size = mx.abs(expected).max().item() + 10  # such sums are of that size: one that is small by chance is as rounded
    assert mx.abs(given - expected).max().item() <= tolerance * size


def coarse(x: mx.array) -> mx.array:
    """x rounded to sixteenths, with 127 / 16 in each 32 of it: what 8 bits hold exactly, so that no tie is at stake."""
    x = mx.clip(mx.round(x * 16), -127, 127)
    return mx.where(mx.arange(x.shape[-1]) % 32 == 0, 127.0, x) / 16


@pytest.mark.parametrize("num_outputs", [1, 50, 128])
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("num_bits", BITS)
def test_what_8_bits_hold_exactly_gives_the_exact_product(num_bits: int, group_size: int, num_outputs: int) -> None:
    form = {"bits": num_bits, "group_size": group_size}
    weights = mx.quantize(random(num_outputs, 384), **form)
    for num_rows in (1, 2, 3, 7, 8, 9, 30):
        x = coarse(random(num_rows, 384, seed=num_rows))
        expected = reference_quantized_linear(x, *weights, **form)
        assert_close(quantized_linear(x, tile(*weights, **form)), expected)


@pytest.mark.parametrize("num_bits", BITS)
def test_other_inputs_are_rounded(num_bits: int, num_bytes: int) -> None:
    form = {"bits": num_bits, "group_size": 32}
    weights = mx.quantize(random(64, 384), **form)
    x = random(5, 384)
    given = quantized_linear(x, tile(*weights, **form))
    with as_floats():
        exact = quantized_linear(x, tile(*weights, **form))
    least, most = CHANGES[num_bytes]
    assert least <= mx.abs(given - exact).max().item() / mx.abs(exact).max().item() < most


@pytest.mark.parametrize("inputs", ["int8", "int16"])
@pytest.mark.parametrize("num_bits", BITS)
def test_they_are_rounded_as_the_reference_does(num_bits: int, inputs: Inputs) -> None:
    form = {"bits": num_bits, "group_size": 32}
    weights = mx.quantize(random(64, 384), **form)
    x = random(5, 384)
    set_inputs(inputs)
    expected = reference_quantized_linear(reference_rounded(x, 32, inputs), *weights, **form)
    assert_close(quantized_linear(x, tile(*weights, **form)), expected, 2e-3)  # a tie or two


@pytest.mark.parametrize("num_bits", BITS)
def test_numbers_of_24_bits_are_no_less_exact_than_floats(num_bits: int) -> None:
    form = {"bits": num_bits, "group_size": 32}
    weights = mx.quantize(random(128, 1536), **form)
    x = random(16, 1536)
    exact = np.array(x).astype(np.float64) @ np.array(mx.dequantize(*weights, **form)).astype(np.float64).T

    def error() -> float:
        return float(np.sqrt(np.mean((np.array(quantized_linear(x, tile(*weights, **form))) - exact) ** 2)))

    native.set_input_bytes(3)
    whole = error()
    with as_floats():
        assert whole <= 1.1 * error()


@pytest.mark.parametrize("num_bits", BITS)
def test_rows_are_exact(num_bits: int) -> None:
    form = {"bits": num_bits, "group_size": 32}
    weights = tile(*mx.quantize(random(80, 128), **form), **form)
    assert_rows_are_exact(lambda x: quantized_linear(x, weights), random(1024, 128))


@pytest.mark.parametrize("num_bits", BITS)
def test_experts_take_rounded_inputs_too(num_bits: int) -> None:
    form = {"bits": num_bits, "group_size": 32}
    weights = mx.quantize(random(3, 40, 128), **form)
    x = coarse(random(6, 1, 128))
    experts = mx.array([0, 2, 1, 1, 0, 2], dtype=mx.uint32)
    given = gathered_linear(x, experts, tile_experts(*weights, **form), 40)
    for row, expert in enumerate(experts.tolist()):
        expected = reference_quantized_linear(x[row], *(part[expert] for part in weights), **form)
        assert_close(given[row], expected)


def test_a_row_of_zeros_gives_zeros() -> None:
    weights = mx.quantize(random(16, 64), bits=4, group_size=32)
    assert not mx.any(quantized_linear(mx.zeros((2, 64)), tile(*weights, bits=4, group_size=32)))


@pytest.mark.parametrize("size", [1e-38, 1e-31, 1e30])
def test_inputs_may_be_of_any_size(size: float) -> None:
    weights = tile(*mx.quantize(random(16, 64), bits=4, group_size=32), bits=4, group_size=32)
    x = coarse(random(3, 64))
    expected = quantized_linear(x, weights) * size
    assert mx.abs(quantized_linear(x * size, weights) - expected).max().item() <= max(1e-5 * size, 1e-28)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_inputs_that_are_no_numbers_are_never_rounded_away(bad: float) -> None:
    weights = tile(*mx.quantize(random(16, 64), bits=4, group_size=32), bits=4, group_size=32)
    x = mx.where(mx.arange(64) == 37, bad, random(3, 64))
    assert mx.all(mx.isnan(quantized_linear(x, weights)))


# ---- whole models ---------------------------------------------------------------------------------------------------


def target(kind: str, bits: int, other_bits: int) -> RowTarget:
    """Of a model whose values and down projections have `other_bits`."""
    config = CONFIGS["llama"] | {"model_type": kind, "hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
    model = tiny_model(kind, config)
    special = ("v_proj", "down_proj")
    nn.quantize(
        model,
        class_predicate=lambda path, layer: (
            hasattr(layer, "to_quantized")
            and {"group_size": 32, "bits": other_bits if path.endswith(special) else bits}
        ),
    )
    accelerate(model)
    made = make_target(model)
    assert isinstance(made, RowTarget)
    assert row_type(made) == "float32"
    return made


@pytest.mark.parametrize(("bits", "other_bits"), [(4, 4), (4, 6), (2, 2), (8, 4)])
def test_rows_of_a_fused_model_are_exact(bits: int, other_bits: int) -> None:
    fused = target("llama", bits, other_bits)
    tokens = [(7 * i) % 100 for i in range(40)]
    alone = run(fused, *([token] for token in tokens))
    for parts in ([tokens], [tokens[:1], tokens[1:]], [tokens[:13], tokens[13:17], tokens[17:]]):
        assert mx.array_equal(run(fused, *parts), alone)


@pytest.mark.parametrize(("bits", "other_bits"), [(4, 4), (4, 6), (2, 2)])
def test_a_fused_model_gives_nearly_what_it_gives_with_floats(bits: int, other_bits: int, num_bytes: int) -> None:
    fused = target("llama", bits, other_bits)
    tokens = [(7 * i) % 100 for i in range(40)]
    rounded = run(fused, tokens)
    with as_floats():
        exact = run(fused, tokens)
    least, most = CHANGES[num_bytes]
    assert least <= mx.abs(rounded - exact).max().item() / mx.abs(exact).max().item() < 5 * most


# ---- the choice -----------------------------------------------------------------------------------------------------


def test_inputs_are_of_16_bits_where_that_is_quicker_unless_told_otherwise() -> None:
    assert inputs_here("auto") == ("int16" if native.IS_QUICK_AT_INT16 else "float32")
    assert inputs_here("int8") == "int8"


@pytest.mark.parametrize("inputs", ["int8", "int16"])
def test_they_agree_with_the_reference_here(inputs: Inputs, num_bytes: int) -> None:
    assert rounded_agree(inputs)
    assert native.input_bytes() == num_bytes


def test_float_inputs_end_with_their_block(num_bytes: int) -> None:
    with float_inputs():
        assert native.input_bytes() == native.FLOAT_BYTES
    assert native.input_bytes() == num_bytes


def test_wrong_ones_are_left_out_loudly(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(preparing, "rounded_agree", lambda inputs: False)
    with caplog.at_level(logging.ERROR):
        report = prepare_kernels(inputs="int8")
    assert report.inputs == "float32"
    assert native.input_bytes() == native.FLOAT_BYTES
    assert "int8 inputs are wrong on this machine" in caplog.text


def test_the_report_tells_of_them() -> None:
    assert "round their inputs to int8" in str(prepare_kernels(inputs="int8"))
    assert "round" not in str(prepare_kernels(inputs="float32"))
