"""Real mlx-lm model folders, small enough to run in a test: random seeded weights, a byte-level tokenizer.

The weights are scaled so that greedy text wanders instead of repeating itself, and depends on the whole context.
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mtplx.engine.text.token_bytes import byte_alphabet
from tests.tiny_configs import CONFIGS

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS = SPECIAL_TOKENS.index("<|im_end|>")
MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("a", "n"), ("an", "d"), ("Ġ", "a"), ("e", "r"))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model_folder(folder: Path, model_type: str, config: Mapping[str, Any] | None = None, *, seed: int = 0) -> Path:
    """Write a model of this type into a new folder below `folder`; returns that folder. It is one of CONFIGS, if no
    other config is given."""
    path = folder / f"tiny-{model_type}-{seed}"
    path.mkdir()
    named = {"model_type": model_type, "eos_token_id": EOS, **(CONFIGS[model_type] if config is None else config)}
    (path / "config.json").write_text(json.dumps(named))
    weights = dict(tree_flatten(tiny_model(model_type, config, seed=seed).parameters()))
    mx.save_safetensors(str(path / "model.safetensors"), weights, metadata={"format": "mlx"})
    write_tokenizer(path)
    return path


def tiny_model(model_type: str, config: Mapping[str, Any] | None = None, *, seed: int = 0) -> nn.Module:
    """The same model in memory alone."""
    module = importlib.import_module(f"mlx_lm.models.{model_type}")
    settings = {"model_type": model_type, **(CONFIGS[model_type] if config is None else config)}
    model: nn.Module = module.Model(module.ModelArgs.from_dict(settings))
    model.load_weights(list(random_weights(model, seed).items()))
    return model


def random_weights(model: nn.Module, seed: int) -> dict[str, mx.array]:
    """Weights for all of the model's parameters, by name."""
    key = mx.random.key(seed)
    weights = {}
    parameters = tree_flatten(model.parameters())
    tied = not any("lm_head" in name for name, _ in parameters)
    for name, initial in parameters:
        key, own = mx.random.split(key)
        weights[name] = _random_like(name, initial, own)
        # A large embedding that is the head too answers each token with itself; the logits keep their size.
        if tied and name.endswith("embed_tokens.weight"):
            weights[name] *= 0.1
        elif tied and name.endswith(("model.norm.weight", "model.embedding_norm.weight")):
            weights[name] *= 10.0
    return weights


def _random_like(name: str, initial: mx.array, key: mx.array) -> mx.array:
    """Matrices that keep the size of what they multiply, embeddings of unit scale; vectors stay near their start."""
    noise = mx.random.normal(initial.shape, key=key)
    if name.endswith("A_log"):
        return noise - 4.0  # a slow decay: recurrent states remember the whole text
    if initial.ndim < 2:
        return initial + 0.1 * noise
    if "embed" in name or "lm_head" in name:
        return noise
    return noise * (1.5 / initial.shape[-1] ** 0.5)


def token_texts() -> list[str]:
    """The tokenizer's tokens by id: special ones, then one for each byte, then what the merges give."""
    return [*SPECIAL_TOKENS, *byte_alphabet(), *(left + right for left, right in MERGES)]


def write_tokenizer(path: Path) -> None:
    """A byte-level BPE tokenizer with a few merges and a chat template, as transformers saves it."""
    vocabulary = {text: index for index, text in enumerate(token_texts())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS])
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
