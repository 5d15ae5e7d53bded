"""Real GGUF files, small enough to run in a test, together with the mlx-lm model they stand for.

The files are written by the format's own Python package. The model is built from the same weights after quantization,
in mlx-lm's order, so it shows what reading the file has to give.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from gguf import GGMLQuantizationType

from tests.tiny_models import CHAT_TEMPLATE, MERGES, SPECIAL_TOKENS, random_weights, token_texts

NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, HIDDEN_SIZE, MLP_SIZE = 2, 4, 2, 16, 64, 96
GGUF_NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "norm": "output_norm",
    "input_layernorm": "attn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}


@dataclass
class TinyGguf:
    """What to write. `types` gives the quantization of the matrices by the end of their mlx-lm name; F32 without.

    `metadata` is added to the usual, or replaces it; None leaves a key out. `tensors` are added as they are.
    """

    architecture: str = "llama"
    types: Mapping[str, str] = field(default_factory=dict)
    tied: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)

    def write(self, path: Path) -> nn.Module:
        """Write the file and return the model it stands for, in float32 and with mlx-lm's usual rotary order."""
        model = self._model()
        writer = gguf.GGUFWriter(path, self.architecture)
        held = {}
        for name, array in random_weights(model, seed=0).items():
            kind = self._type(name, array)
            data = gguf.quants.quantize(np.array(array), kind)
            held[name] = mx.array(gguf.quants.dequantize(data, kind).reshape(array.shape))
            writer.add_tensor(_gguf_name(name), self._in_file_order(name, data), raw_dtype=kind)
        for name, data in self.tensors.items():
            writer.add_tensor(name, data)
        self._write_metadata(writer)
        model.load_weights(list(held.items()), strict=True)
        return model

    def _model(self) -> nn.Module:
        module = importlib.import_module(f"mlx_lm.models.{self.architecture}")
        settings = {
            "model_type": self.architecture,
            "hidden_size": HIDDEN_SIZE,
            "num_hidden_layers": NUM_LAYERS,
            "intermediate_size": MLP_SIZE,
            "num_attention_heads": NUM_HEADS,
            "num_key_value_heads": NUM_KV_HEADS,
            "head_dim": HEAD_SIZE,
            "rms_norm_eps": 1e-5,
            "vocab_size": len(token_texts()),
            "max_position_embeddings": 512,
            "rope_theta": 5000.0,
            "tie_word_embeddings": self.tied,
        }
        model: nn.Module = module.Model(module.ModelArgs.from_dict(settings | self.settings))
        return model

    def _type(self, name: str, array: mx.array) -> GGMLQuantizationType:
        chosen = [kind for end, kind in self.types.items() if name.removesuffix(".weight").endswith(end)]
        return GGMLQuantizationType[chosen[0] if chosen and array.ndim == 2 else "F32"]

    def _in_file_order(self, name: str, data: np.ndarray) -> np.ndarray:
        """For llama, llama.cpp's converter makes neighbours of the two halves that a rotation turns together."""
        if self.architecture != "llama" or not any(part in name for part in ("q_proj", "k_proj")):
            return data
        halves = data.reshape(-1, 2, HEAD_SIZE // 2, *data.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(data.shape)

    def _write_metadata(self, writer: gguf.GGUFWriter) -> None:
        for key, value in (_usual_metadata(self.architecture) | self.metadata).items():
            match value:
                case None:
                    pass
                case bool():
                    writer.add_bool(key, value)
                case int():
                    writer.add_uint32(key, value)
                case float():
                    writer.add_float32(key, value)
                case str():
                    writer.add_string(key, value)
                case _:
                    writer.add_array(key, value)
        finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _usual_metadata(architecture: str) -> dict[str, Any]:
    texts = token_texts()
    settings = {
        "context_length": 512,
        "embedding_length": HIDDEN_SIZE,
        "block_count": NUM_LAYERS,
        "feed_forward_length": MLP_SIZE,
        "attention.head_count": NUM_HEADS,
        "attention.head_count_kv": NUM_KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 5000.0,
    }
    tokenizer = {
        "ggml.model": "gpt2",
        "ggml.pre": "smollm",
        "ggml.tokens": texts,
        "ggml.token_type": [3 if text in SPECIAL_TOKENS else 1 for text in texts],
        "ggml.merges": [" ".join(merge) for merge in MERGES],
        "ggml.eos_token_id": SPECIAL_TOKENS.index("<|im_end|>"),
        "chat_template": CHAT_TEMPLATE,
    }
    return {f"{architecture}.{key}": value for key, value in settings.items()} | {
        f"tokenizer.{key}": value for key, value in tokenizer.items()
    }


def _gguf_name(name: str) -> str:
    parts = name.split(".")
    module, kind = GGUF_NAMES[parts[-2]], parts[-1]
    return f"blk.{parts[2]}.{module}.{kind}" if "layers" in parts else f"{module}.{kind}"
