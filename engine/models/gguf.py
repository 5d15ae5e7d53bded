"""An mlx-lm model from a GGUF file, its weights quantized as they are in the file.

Knows GGUF's names for the tensors and settings of the architectures below, and how mlx-lm calls them. Knows no
tokenizer.
"""

import importlib
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf_header import GgufHeader, Kind
from mtplx.engine.models.gguf_rope import rope_scaling
from mtplx.engine.models.precision import float_type

ARCHITECTURES = ("llama", "qwen2", "qwen3")
# The rest `mx.load` refuses, or reads wrongly: of Q4_K it gives every second block of 32 weights its neighbour's scale.
TENSOR_TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q2_K", "Q6_K")
GROUP_SIZE = 32

OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"


def check_supported(header: GgufHeader) -> None:
    """Raises ModelLoadError when the file's architecture or the quantization of a tensor isn't supported."""
    architecture = header.require("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise ModelLoadError(
            f"{header.path} holds a '{architecture}' model; supported in GGUF are {', '.join(ARCHITECTURES)}"
        )
    for tensor in header.tensors.values():
        if tensor.type_name not in TENSOR_TYPES:
            raise ModelLoadError(
                f"{header.path}: tensor '{tensor.name}' is quantized as {tensor.type_name}, which isn't supported; "
                f"choose a file with {', '.join(TENSOR_TYPES)} only"
            )


def build_model(header: GgufHeader) -> nn.Module:
    """The model of a supported file, ready to run. Raises ModelLoadError when the file contradicts itself."""
    architecture = header.require("general.architecture", str)
    arrays = _read_arrays(header)
    rope_factors = arrays.pop(ROPE_FACTORS, None)
    settings = _settings(header, architecture, rope_factors)
    weights = {_mlx_name(header, name): _as_floats(array) for name, array in arrays.items()}

    module = importlib.import_module(f"mlx_lm.models.{architecture}")
    model: nn.Module = module.Model(module.ModelArgs.from_dict(settings))
    _quantize_like(model, weights)
    model.eval()
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise ModelLoadError(f"{header.path} does not hold a complete {architecture} model: {error}") from error
    mx.eval(model.parameters())
    return model


def _read_arrays(header: GgufHeader) -> dict[str, mx.array]:
    try:
        arrays = mx.load(str(header.path))
    except (RuntimeError, ValueError) as error:
        raise ModelLoadError(f"{header.path} is cut off or damaged ({error}); download it again") from error
    assert isinstance(arrays, dict)
    return arrays


def _settings(header: GgufHeader, architecture: str, rope_factors: mx.array | None) -> dict[str, Any]:
    """The file's settings as mlx-lm's model arguments are called; an architecture takes those that it knows."""

    def required(key: str, kind: type[Kind]) -> Kind:
        return header.require(f"{architecture}.{key}", kind)

    def optional(key: str, default: Kind) -> Kind:
        return header.get(f"{architecture}.{key}", default)

    num_heads = required("attention.head_count", int)
    hidden_size = required("embedding_length", int)
    head_size = optional("attention.key_length", hidden_size // num_heads)
    if optional("rope.dimension_count", head_size) != head_size:
        raise ModelLoadError(f"{header.path} rotates only a part of each head, which isn't supported")
    return {
        "model_type": architecture,
        "hidden_size": hidden_size,
        "num_hidden_layers": required("block_count", int),
        "intermediate_size": required("feed_forward_length", int),
        "num_attention_heads": num_heads,
        "num_key_value_heads": optional("attention.head_count_kv", num_heads),
        "head_dim": head_size,
        "rms_norm_eps": required("attention.layer_norm_rms_epsilon", float),
        "max_position_embeddings": required("context_length", int),
        "vocab_size": _vocabulary_size(header),
        "rope_theta": optional("rope.freq_base", 10000.0),
        "rope_scaling": rope_scaling(header, architecture, rope_factors),
        # llama.cpp's converter reorders the rows of q and k for llama alone, from halves to pairs.
        "rope_traditional": architecture == "llama",
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
        "tie_word_embeddings": "output.weight" not in header.tensors,
    }


def _vocabulary_size(header: GgufHeader) -> int:
    if "token_embd.weight" not in header.tensors:
        raise ModelLoadError(f"{header.path} holds no tensor 'token_embd.weight'; download it again")
    return header.tensors["token_embd.weight"].shape[0]


def _mlx_name(header: GgufHeader, name: str) -> str:
    """What mlx-lm calls the array that `mx.load` calls `name`."""
    match name.split("."):
        case ["blk", layer, module, kind] if module in LAYER_NAMES:
            return f"model.layers.{layer}.{LAYER_NAMES[module]}.{kind}"
        case [module, kind] if module in OUTER_NAMES:
            return f"{OUTER_NAMES[module]}.{kind}"
    raise ModelLoadError(f"{header.path} holds a tensor '{name}' this architecture has no place for")


def _as_floats(array: mx.array) -> mx.array:
    """The same weights, packed ones as they are, others in the type this device is fast in."""
    return array if array.dtype == mx.uint32 else array.astype(float_type())


def _quantize_like(model: nn.Module, weights: dict[str, mx.array]) -> None:
    """Give each module that has packed weights its quantized form, with the number of bits they have."""

    def layout(path: str, module: nn.Module) -> bool | dict[str, int]:
        if f"{path}.scales" not in weights:
            return False
        bits = weights[f"{path}.weight"].shape[-1] * 32 // module.weight.shape[-1]
        return {"group_size": GROUP_SIZE, "bits": bits}

    nn.quantize(model, class_predicate=layout)
