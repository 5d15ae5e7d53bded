"""A GGUF file gives the model it stands for: the same logits as an mlx-lm model with the file's weights."""

import re
from pathlib import Path

import gguf
import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf import GROUP_SIZE, TENSOR_TYPES, check_supported
from mtplx.engine.models.gguf_header import GgufHeader, TensorInfo
from mtplx.engine.models.gguf_model import load_gguf
from tests.tiny_gguf import HEAD_SIZE, TinyGguf, finish

TOKENS = mx.array([[5, 80, 200, 31, 7, 7, 120, 9, 44, 2, 77, 260]])
ARCHITECTURES = ["llama", "qwen2", "qwen3"]


def load(path: Path, **options: object) -> nn.Module:
    TinyGguf(**options).write(path)
    return load_gguf(path, model_id="tiny").model


def assert_same_logits(file: TinyGguf, path: Path) -> None:
    expected = file.write(path)(TOKENS)
    logits = load_gguf(path, model_id="tiny").model(TOKENS)
    np.testing.assert_allclose(np.array(logits), np.array(expected), rtol=1e-3, atol=2e-3)
    assert float(mx.abs(expected).max()) > 1.0  # not equal because all is zero


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_logits_are_those_of_the_weights_in_the_file(architecture: str, kind: str, tmp_path: Path) -> None:
    assert_same_logits(TinyGguf(architecture, types={"": kind}), tmp_path / "tiny.gguf")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_layers_may_mix_quantizations_and_the_embedding_may_be_the_head(architecture: str, tmp_path: Path) -> None:
    types = {"embed_tokens": "Q8_0", "v_proj": "F16", "layers.0.mlp.down_proj": "Q8_0", "": "Q4_1"}
    assert_same_logits(TinyGguf(architecture, types=types, tied=True), tmp_path / "tiny.gguf")


def test_llama_attention_may_have_biases(tmp_path: Path) -> None:
    assert_same_logits(TinyGguf("llama", settings={"attention_bias": True}), tmp_path / "tiny.gguf")


def test_head_size_may_differ_from_hidden_size_over_heads(tmp_path: Path) -> None:
    file = TinyGguf(
        "qwen3",
        settings={"num_attention_heads": 2, "num_key_value_heads": 1},
        metadata={
            "qwen3.attention.head_count": 2,
            "qwen3.attention.head_count_kv": 1,
            "qwen3.attention.key_length": HEAD_SIZE,
        },
    )
    assert_same_logits(file, tmp_path / "tiny.gguf")


def test_weights_stay_quantized_as_they_are(tmp_path: Path) -> None:
    model = load(tmp_path / "tiny.gguf", types={"down_proj": "Q8_0", "norm": "F32", "": "Q4_0"})
    layer = model.layers[0]
    assert (layer.mlp.down_proj.bits, layer.mlp.up_proj.bits, model.lm_head.bits) == (8, 4, 4)
    assert layer.mlp.up_proj.weight.dtype == mx.uint32


def test_what_is_not_packed_becomes_float32_on_the_cpu(tmp_path: Path) -> None:
    if mx.default_device() != mx.Device(mx.cpu):
        pytest.skip("this device keeps float16")
    layer = load(tmp_path / "tiny.gguf", types={"up_proj": "Q4_0", "": "F16"}).layers[0]
    assert layer.mlp.up_proj.scales.dtype == layer.mlp.gate_proj.weight.dtype == mx.float32


@pytest.mark.parametrize(
    ("scaling", "metadata"),
    [
        ({"type": "linear", "factor": 4.0}, {"type": "linear", "factor": 4.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
            {"type": "yarn", "factor": 4.0, "original_context_length": 128},
        ),
    ],
)
def test_rotary_positions_are_scaled_as_the_metadata_says(scaling: dict, metadata: dict, tmp_path: Path) -> None:
    keys = {f"qwen2.rope.scaling.{key}": value for key, value in metadata.items()}
    assert_same_logits(TinyGguf("qwen2", settings={"rope_scaling": scaling}, metadata=keys), tmp_path / "tiny.gguf")


def llama3_factors(base: float, factor: float) -> np.ndarray:
    """What llama.cpp's converter writes for Llama 3.1: short waves as they are, long ones slower by the factor."""
    wavelengths = 2 * np.pi * base ** (np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    smooth = np.clip((8192 / wavelengths - 1) / (4 - 1), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def test_rotary_factors_of_llama3_are_understood(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    file = TinyGguf(
        settings={"rope_scaling": scaling, "rope_theta": 500000.0},
        metadata={"llama.rope.freq_base": 500000.0},
        tensors={"rope_freqs.weight": llama3_factors(500000.0, 8.0)},
    )
    assert_same_logits(file, tmp_path / "tiny.gguf")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"metadata": {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}}, "'longrope'"),
        ({"tensors": {"rope_freqs.weight": np.linspace(1, 3, HEAD_SIZE // 2, dtype=np.float32)}}, "unlike llama3"),
        ({"tensors": {"blk.0.ffn_gate_inp.weight": np.ones((4, 64), np.float32)}}, "'blk.0.ffn_gate_inp.weight'"),
        ({"metadata": {"llama.attention.head_count": None}}, "lacks the metadata 'llama.attention.head_count'"),
        ({"metadata": {"llama.attention.head_count": "four"}}, "'four', expected int"),
        ({"metadata": {"llama.rope.dimension_count": 8}}, "only a part of each head"),
        ({"metadata": {"llama.block_count": 3}}, "not hold a complete llama model"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(options: dict, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=re.escape(complaint)):
        load(tmp_path / "tiny.gguf", **options)


def header_with(architecture: str = "llama", type_name: str = "F32") -> GgufHeader:
    tensor = TensorInfo("blk.0.ffn_up.weight", (64, 64), type_name)
    return GgufHeader(Path("tiny.gguf"), {"general.architecture": architecture}, {tensor.name: tensor})


def test_an_unsupported_architecture_is_named_with_the_supported_ones() -> None:
    with pytest.raises(ModelLoadError, match="holds a 'gemma3' model; supported in GGUF are llama, qwen2, qwen3"):
        check_supported(header_with(architecture="gemma3"))


@pytest.mark.parametrize("type_name", ["Q4_K", "Q5_K", "Q5_0", "IQ4_XS", "number 99"])
def test_an_unsupported_quantization_is_named_with_the_tensor(type_name: str) -> None:
    with pytest.raises(ModelLoadError, match=f"'blk.0.ffn_up.weight' is quantized as {type_name}"):
        check_supported(header_with(type_name=type_name))


@pytest.mark.parametrize("type_name", TENSOR_TYPES)
def test_mlx_reads_every_accepted_quantization_as_the_format_defines_it(type_name: str, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType[type_name]
    data = some_blocks(kind)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("one.weight", data, raw_dtype=kind)
    finish(writer)

    read = mx.load(str(tmp_path / "one.gguf"))
    weight = read["one.weight"]
    if "one.scales" in read:
        scales, biases = (read[f"one.{name}"].astype(mx.float32) for name in ("scales", "biases"))
        bits = weight.shape[-1] * 32 // 512
        weight = mx.dequantize(weight, scales, biases, group_size=GROUP_SIZE, bits=bits)
    expected = gguf.quants.dequantize(data, kind)
    np.testing.assert_allclose(np.array(weight.astype(mx.float32)), expected, rtol=1e-3, atol=1e-3)


def some_blocks(kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Quantized data of 8 x 512 weights; for kinds the package can't produce, blocks of noise with sane scales."""
    rng = np.random.default_rng(0)
    try:
        return gguf.quants.quantize(rng.standard_normal((8, 512), np.float32), kind)
    except NotImplementedError:
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (8, 2, block_bytes), dtype=np.uint8)
        blocks[..., -4:] = np.array([0.01, 0.02], np.float16).view(np.uint8)
        return blocks.reshape(8, -1)
