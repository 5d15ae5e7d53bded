"""The front swaps what it can in any mlx-lm model, changes no value, and tells what it did."""

import logging
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.models.fused_target import FusedTarget
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.row_target import RowTarget
from mtplx.engine.models.target import Rows
from mtplx.kernels import layers
from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.decoder import DecoderRows, NativeDecoder, NativeLayers, OtherShapeError
from mtplx.kernels.row_buffers import join_rows, read_rows
from tests.kernels.availability import needs_native
from tests.kernels.forwards import run
from tests.tiny_configs import CONFIGS, TRANSFORMER
from tests.tiny_models import tiny_model, tiny_model_folder

pytestmark = needs_native

TOKENS = [(7 * i) % 256 for i in range(40)]

MIXTURES = {
    "qwen3_next": CONFIGS["qwen3_next"],
    "qwen3_moe": TRANSFORMER
    | {
        "hidden_size": 64,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 40,
        "norm_topk_prob": True,
    },
    "mixtral": {name: TRANSFORMER[name] for name in TRANSFORMER.keys() - {"head_dim", "max_position_embeddings"}}
    | {"num_local_experts": 5, "num_experts_per_tok": 2, "hidden_size": 64},
}


def quantized_model(folder: Path, kind: str) -> nn.Module:
    """A tiny model with 4-bit products and an 8-bit embedding, where their sizes allow it."""
    model = load_model(str(tiny_model_folder(folder, kind))).model

    def form(path: str, module: nn.Module) -> bool | dict[str, int]:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % 32:
            return False
        return {"group_size": 32, "bits": 8 if "embed" in path else 4}

    nn.quantize(model, class_predicate=form)
    return model


def logits(model: nn.Module) -> mx.array:
    return model(mx.array(TOKENS)[None], cache=make_prompt_cache(model))[0]


@pytest.mark.parametrize("kind", CONFIGS)
def test_an_accelerated_model_gives_the_same_logits(tmp_path: Path, kind: str) -> None:
    model = quantized_model(tmp_path, kind)
    before = logits(model)
    mx.eval(before)
    done = accelerate(model)
    assert sum(done.native.values()) > 0
    assert done.failed == ()
    after = logits(model)
    assert mx.abs(after - before).max().item() < 1e-4 * mx.abs(before).max().item()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("kind", CONFIGS)
def test_so_does_one_that_is_not_quantized(tmp_path: Path, kind: str, dtype: mx.Dtype) -> None:
    model = load_model(str(tiny_model_folder(tmp_path, kind))).model
    products = [module for module in model.modules() if type(module) is nn.Linear]
    for product in products:
        product.weight = product.weight.astype(dtype)
    before = logits(model)
    mx.eval(before)
    done = accelerate(model)
    assert done.failed == ()
    assert done.native["Linear"] > 0
    after = logits(model)
    assert mx.abs(after - before).max().item() < 1e-4 * mx.abs(before).max().item()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_rows_of_a_model_that_is_not_quantized_are_exact(tmp_path: Path, kind: str) -> None:
    model = load_model(str(tiny_model_folder(tmp_path, kind))).model
    accelerate(model)
    target = RowTarget(model, make_prompt_cache(model))
    alone = run(target, *([token] for token in TOKENS))
    for parts in ([TOKENS], [TOKENS[:1], TOKENS[1:]], [TOKENS[:13], TOKENS[13:17], TOKENS[17:]]):
        assert mx.array_equal(run(target, *parts), alone)


@pytest.mark.parametrize("bits", [None, 4], ids=["dense", "quantized"])
@pytest.mark.parametrize("kind", MIXTURES)
def test_so_does_one_with_experts(kind: str, bits: int | None) -> None:
    model = mixture(kind, bits)
    before = logits(model)
    mx.eval(before)
    done = accelerate(model)
    assert done.failed == ()
    assert done.native["QuantizedSwitchLinear" if bits else "SwitchLinear"] > 0
    after = logits(model)
    assert mx.abs(after - before).max().item() < 1e-4 * mx.abs(before).max().item()


@pytest.mark.parametrize("bits", [None, 4], ids=["dense", "quantized"])
@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
def test_rows_of_a_model_with_experts_are_exact(kind: str, bits: int | None) -> None:
    model = mixture(kind, bits)
    accelerate(model)
    target = RowTarget(model, make_prompt_cache(model))
    alone = run(target, *([token] for token in TOKENS))
    for parts in ([TOKENS], [TOKENS[:1], TOKENS[1:]], [TOKENS[:13], TOKENS[13:17], TOKENS[17:]]):
        assert mx.array_equal(run(target, *parts), alone)


def mixture(kind: str, bits: int | None) -> nn.Module:
    """A tiny model with experts, quantized where sizes allow it if there are bits."""
    model = tiny_model(kind, MIXTURES[kind])
    if bits:
        nn.quantize(
            model,
            group_size=32,
            bits=bits,
            class_predicate=lambda _, module: hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0,
        )
    return model


def test_it_tells_what_it_did_and_leaves_the_rest(tmp_path: Path) -> None:
    model = quantized_model(tmp_path, "gemma3_text")
    done = accelerate(model)
    assert done.native["RoPE"] == 6
    assert done.stock["RMSNorm"] > 0  # gemma's own norm, which adds 1 to its weight, is not MLX's


def test_layer_norms_are_swapped_whatever_weights_they_have() -> None:
    norms = [nn.LayerNorm(48), nn.LayerNorm(48, affine=False, eps=0.1), nn.LayerNorm(48, bias=False)]
    model = nn.Sequential(*norms)
    model.apply(lambda weight: weight + mx.random.normal(weight.shape))
    x = mx.random.normal((5, 48)) + 2.0
    expected = [norm(x) for norm in norms]
    assert accelerate(model).native == {"LayerNorm": 3}
    for norm, values in zip(model.layers, expected, strict=True):
        assert isinstance(norm, layers.NativeLayerNorm)
        assert mx.allclose(norm(x), values, rtol=1e-5, atol=1e-5)


def test_a_kernel_that_differs_is_left_out_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(layers, "rms_norm", lambda x, weight, eps: x)
    model = quantized_model(tmp_path, "llama")
    before = logits(model)
    with caplog.at_level(logging.ERROR):
        done = accelerate(model)
    assert done.failed == ("RMSNorm",)
    assert "RMSNorm" in caplog.text
    assert "RMSNorm" not in done.native
    assert mx.abs(logits(model) - before).max().item() < 1e-4 * mx.abs(before).max().item()


# ---- the decoder layers as one call ---------------------------------------------------------------------------------


def targets(folder: Path, kind: str, row_type: mx.Dtype = mx.float32) -> tuple[RowTarget, FusedTarget]:
    model = wide_model(folder, kind)
    accelerate(model)
    caches = make_prompt_cache(model)
    return RowTarget(model, caches), FusedTarget(model, caches, row_type)


def wide_model(folder: Path, kind: str) -> nn.Module:
    """As the tiny ones, but with sizes that quantization takes everywhere."""
    import importlib

    config = CONFIGS["llama"] | {"model_type": kind, "hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    mx.random.seed(3)
    model = module.Model(module.ModelArgs.from_dict(config))
    nn.quantize(model, group_size=32, bits=4)
    return model


ROW_TYPES = {"float32": (mx.float32, 0.0, 1e-4), "float16": (mx.float16, 1e-5, 3e-3)}  # and how far logits may move


@pytest.mark.parametrize(("row_type", "least", "most"), ROW_TYPES.values(), ids=ROW_TYPES)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_fused_layers_give_what_the_model_gives(
    tmp_path: Path, kind: str, row_type: mx.Dtype, least: float, most: float
) -> None:
    by_rows, fused = targets(tmp_path, kind, row_type)
    expected = run(by_rows, TOKENS)
    moved = mx.abs(run(fused, TOKENS) - expected).max().item() / mx.abs(expected).max().item()
    assert least <= moved < most


@pytest.mark.parametrize("row_type", [mx.float32, mx.float16])
def test_fused_rows_are_exact(tmp_path: Path, row_type: mx.Dtype) -> None:
    _, fused = targets(tmp_path, "llama", row_type)
    alone = run(fused, *([token] for token in TOKENS))
    for parts in ([TOKENS], [TOKENS[:1], TOKENS[1:]], [TOKENS[:13], TOKENS[13:17], TOKENS[17:]]):
        assert mx.array_equal(run(fused, *parts), alone)
    many = TOKENS * 10  # past the growth of the buffers, and many rows at once
    assert mx.array_equal(run(fused, many), run(fused, many[:3], many[3:250], many[250:]))


@pytest.mark.parametrize("row_type", [mx.float32, mx.float16])
def test_sequences_share_a_fused_forward_without_a_trace(tmp_path: Path, row_type: mx.Dtype) -> None:
    _, fused = targets(tmp_path, "qwen3", row_type)
    alone = run(fused, TOKENS[:7], TOKENS[7:9])
    first, second = fused.new_cache(), fused.new_cache()
    a, _ = fused.forward([Rows(first, TOKENS[:7], 7), Rows(second, TOKENS[20:33], 1)])
    first.commit(7)
    second.commit(13)
    _, b = fused.forward([Rows(second, [5], 0), Rows(first, TOKENS[7:9], 2)])
    assert mx.array_equal(mx.concatenate([mx.array(a), mx.array(b)]), alone)


def test_a_buffer_that_somebody_holds_is_not_written(tmp_path: Path) -> None:
    _, fused = targets(tmp_path, "llama")
    cache = fused.new_cache()
    fused.forward([Rows(cache, TOKENS[:5], 1)])
    cache.commit(5)
    held = cache.buffer
    assert held is not None
    before = mx.array(held)
    mx.eval(before)
    fused.forward([Rows(cache, [1, 2], 1)])
    assert mx.array_equal(held, before, equal_nan=True)  # beyond the rows is anything


def test_a_buffer_that_nobody_else_holds_is_written_where_it_is(tmp_path: Path) -> None:
    _, fused = targets(tmp_path, "llama")
    cache = fused.new_cache()
    places = []
    for token in TOKENS[:3]:
        fused.forward([Rows(cache, [token], 1)])
        cache.commit(1)
        places.append(np.asarray(cache.buffer).ctypes.data)
    assert len(set(places)) == 1


def test_a_pass_at_once_gives_what_a_lazy_one_gives(tmp_path: Path) -> None:
    model = wide_model(tmp_path, "llama")
    accelerate(model)
    native_layers = NativeLayers(model.layers, model.model.norm, embedding=model.model.embed_tokens)
    size = native_layers.row_like.shape
    rows = [DecoderRows(0, 0, 5), DecoderRows(3, 5, 7)]
    given = [join_rows([mx.random.normal((*size[:2], 5, size[3]))], 16) for _ in rows]
    lazy = native_layers.lazily(mx.array(TOKENS[:7]), rows, [4, 6], list(given), wants_hidden=True).evaluated()
    now = native_layers.now(TOKENS[:7], rows, [4, 6], list(given), wants_hidden=True)
    assert np.array_equal(lazy.logits, now.logits)
    assert np.array_equal(lazy.hidden, now.hidden)
    for one, other in zip(lazy.buffers, now.buffers, strict=True):
        assert mx.array_equal(read_rows(one, 0, 5), read_rows(other, 0, 5))


@pytest.mark.parametrize("row_type", [mx.float32, mx.float16])
def test_rows_that_are_lent_go_on_as_if_they_were_the_sequences_own(tmp_path: Path, row_type: mx.Dtype) -> None:
    _, fused = targets(tmp_path, "llama", row_type)
    lender, borrower = fused.new_cache(), fused.new_cache()
    fused.forward([Rows(lender, TOKENS[:20], 1)])
    lender.commit(20)
    borrower.restore(19, [lender.read_rows(0, 5), lender.read_rows(5, 19)], None)
    [after] = fused.forward([Rows(borrower, TOKENS[19:], 21)])
    assert mx.array_equal(mx.array(after), run(fused, TOKENS)[19:])


def test_buffers_of_other_types_are_refused(tmp_path: Path) -> None:
    model = wide_model(tmp_path, "llama")
    accelerate(model)
    native_layers = NativeLayers(model.layers, model.model.norm, embedding=model.model.embed_tokens)
    row, rows = native_layers.row_like, [DecoderRows(0, 0, 1), DecoderRows(0, 1, 2)]
    of_both = [join_rows([row.astype(row_type)], 16) for row_type in (mx.float32, mx.float16)]
    with pytest.raises(ValueError, match="one type"):
        native_layers.now(TOKENS[:2], rows, [1], of_both)
    with pytest.raises(ValueError, match="one type"):
        native_layers.lazily(mx.array(TOKENS[:2]), rows, [1], of_both)
    with pytest.raises(ValueError, match="float32 or float16"):
        native_layers.now(TOKENS[:1], rows[:1], [0], [mx.zeros((*row.shape[:2], 16, row.shape[3]), dtype=mx.bfloat16)])


@pytest.mark.parametrize("kind", ["gemma3_text", "mamba2", "qwen3_next"])
def test_a_model_of_another_shape_is_not_taken(tmp_path: Path, kind: str) -> None:
    model = quantized_model(tmp_path, kind)
    accelerate(model)
    with pytest.raises(OtherShapeError):
        NativeDecoder(model)
