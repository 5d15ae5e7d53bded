"""Checkpoints in the layouts that families publish them in, with a multi-token-prediction block; tiny and random.

`FAMILIES` says how each lays out its tensors, as far as that differs from what mlx-lm makes of them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from tests.tiny_configs import CONFIGS, TRANSFORMER
from tests.tiny_models import EOS, tiny_model, write_tokenizer

Tensors = dict[str, mx.array]

_QWEN3_5 = CONFIGS["qwen3_next"] | {
    "num_experts": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}


@dataclass(frozen=True)
class Family:
    """`prefix` and `layer` place the block's tensors, `names` are of the embedding's norm, the hidden state's, the
    projection and the final norm; `publish` turns mlx-lm's tensors into published ones."""

    config: dict[str, Any]
    prefix: str
    layer: str
    names: tuple[str, str, str, str]
    publish: Callable[[Tensors, dict[str, Any]], Tensors]


def _experts_apart(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    apart: Tensors = {}
    for name, value in tensors.items():
        if "switch_mlp" in name:
            apart |= {name.replace("switch_mlp", f"experts.{e}"): value[e] for e in range(value.shape[0])}
        else:
            apart[name] = value
    return apart


def _deepseek(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Keys and values of all heads come from the latent by one matrix."""
    tensors = _experts_apart(tensors, config)
    for name in [name for name in tensors if name.endswith("embed_q.weight")]:
        to_keys = tensors.pop(name).swapaxes(1, 2)  # [H, d, R]
        to_values = tensors.pop(name.replace("embed_q", "unembed_out"))  # [H, d', R]
        both = mx.concatenate([to_keys, to_values], axis=1)
        tensors[name.replace("embed_q", "kv_b_proj")] = both.reshape(-1, both.shape[2])
    return tensors


def _qwen(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Norms are stored less 1, but for that of linear attention; convolutions as PyTorch has them."""
    published: Tensors = {}
    for name, value in _experts_apart(tensors, config).items():
        if name.endswith("norm.weight") and "linear_attn" not in name:
            value = value - 1.0
        published[name] = value.moveaxis(2, 1) if "conv1d" in name else value
    return published


def _qwen3_5(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    return {name.replace("language_model.", ""): value for name, value in _qwen(tensors, config).items()}


_DEEPSEEK_NAMES = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
_QWEN_NAMES = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
_MIMO_NAMES = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")

FAMILIES = {
    "deepseek_v3": Family(CONFIGS["deepseek_v3"], "model.layers.3.", "", _DEEPSEEK_NAMES, _deepseek),
    "glm4_moe": Family(CONFIGS["glm4_moe"], "model.layers.3.", "", _DEEPSEEK_NAMES, _experts_apart),
    "qwen3_next": Family(CONFIGS["qwen3_next"], "mtp.", "layers.0.", _QWEN_NAMES, _qwen),
    "qwen3_5": Family(_QWEN3_5, "mtp.", "layers.0.", _QWEN_NAMES, _qwen3_5),
    "mimo": Family(
        {name: value for name, value in TRANSFORMER.items() if name != "head_dim"},
        "model.mtp_layers.0.",
        "",
        _MIMO_NAMES,
        lambda tensors, config: tensors,
    ),
}


@cache
def head_tensors(model_type: str) -> Tensors:
    """The block's tensors by their names below the prefix, as they are published. The same in every call."""
    family = FAMILIES[model_type]
    model = tiny_model(model_type, family.config, seed=1)
    last = f"layers.{len(model.layers) - 1}."
    size = family.config["hidden_size"]
    layer = {name: value for name, value in tree_flatten(model.parameters()) if last in name}
    tensors = {family.layer + n.partition(last)[2]: value for n, value in family.publish(layer, family.config).items()}
    keys = mx.random.split(mx.random.key(2), 4)
    shapes = [(size,), (size,), (size, 2 * size), (size,)]
    for name, shape, key in zip(family.names, shapes, keys, strict=True):
        tensors[f"{name}.weight"] = mx.random.normal(shape, key=key) * 0.1
        if len(shape) == 1 and family.publish not in (_qwen, _qwen3_5):
            tensors[f"{name}.weight"] += 1.0
    return tensors


@cache
def target_tensors(model_type: str) -> Tensors:
    """The model's tensors, as they are published. The same in every call."""
    family = FAMILIES[model_type]
    model = tiny_model(model_type, family.config)
    return family.publish(dict(tree_flatten(model.parameters())), family.config)


def write_checkpoint(folder: Path, model_type: str, head: Tensors) -> Path:
    """A folder with a model and these tensors of a block."""
    family = FAMILIES[model_type]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "eos_token_id": EOS, **family.config}))
    target = target_tensors(model_type)
    mx.save_safetensors(str(folder / "model-00001-of-00002.safetensors"), target)
    # mlx-lm knows of DeepSeek's block only that it is layer 61; in a file of another name it doesn't see this one.
    second = "mtp.safetensors" if model_type == "deepseek_v3" else "model-00002-of-00002.safetensors"
    block = {family.prefix + name: value for name, value in head.items()}
    mx.save_safetensors(str(folder / second), block)
    places = {name: "model-00001-of-00002.safetensors" for name in target} | {name: second for name in block}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    write_tokenizer(folder)
    return folder
