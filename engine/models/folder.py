"""An mlx-lm model folder: config.json, safetensors, and a tokenizer as the transformers library saves it."""

import json
import logging
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import load_model, load_tokenizer

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.native_heads import native_head
from mtplx.engine.models.precision import describe_precision, float_type
from mtplx.engine.text.hf_tokenizer import HfTokenizer

logger = logging.getLogger(__name__)

CONTEXT_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
ASSUMED_CONTEXT_LENGTH = 8192


def load_folder(path: Path, *, model_id: str) -> LoadedModel:
    """Load the folder at `path`. Raises ModelLoadError when a part is missing, damaged or not supported by mlx-lm."""
    config = _read_config(path)
    model = _load_weights(path, config)
    return LoadedModel(
        id=model_id,
        source=str(path),
        architecture=config["model_type"],
        quantization=describe_precision(model),
        context_length=_context_length(path, config),
        vocab_size=_text_settings(config).get("vocab_size") or _num_embeddings(model),  # mlx-lm has defaults
        model=model,
        tokenizer=_load_tokenizer(path, config),
        draft_head=native_head(path, model, config.get("quantization")),
    )


def _read_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise ModelLoadError(f"{path} has no config.json; name the folder of an mlx-lm model") from None
    except ValueError as error:
        raise ModelLoadError(f"{file} isn't valid JSON ({error}); download it again") from error
    if "model_type" not in config:
        raise ModelLoadError(f"{file} names no model_type; mlx-lm needs it to choose the architecture")
    return config


def _load_weights(path: Path, config: dict[str, Any]) -> nn.Module:
    if not any(path.glob("model*.safetensors")):
        raise ModelLoadError(f"{path} holds no model*.safetensors; convert the model with mlx_lm.convert")
    # Some folders write null for a text_config that they don't have, and mlx-lm takes that for a mapping.
    instead: dict[str, Any] = {"text_config": {}} if config.get("text_config", {}) is None else {}
    try:
        model: nn.Module = load_model(path, lazy=True, model_config=instead)[0]
        if float_type() == mx.float32:
            model.set_dtype(mx.float32)
        mx.eval(model.parameters())
    except Exception as error:  # mlx-lm raises what its many models happen to raise
        raise ModelLoadError(f"mlx-lm can't load the model in {path}: {error}") from error
    return model


def _load_tokenizer(path: Path, config: dict[str, Any]) -> HfTokenizer:
    try:
        return HfTokenizer(load_tokenizer(path, eos_token_ids=_eos_token_ids(path, config)))
    except Exception as error:  # transformers has no error class for it
        raise ModelLoadError(f"the tokenizer in {path} can't be loaded: {error}") from error


def _eos_token_ids(path: Path, config: dict[str, Any]) -> list[int] | int | None:
    """What the folder says ends a text; generation_config.json, if there, knows better than config.json."""
    file = path / "generation_config.json"
    generation = json.loads(file.read_text()) if file.exists() else {}
    return generation.get("eos_token_id", _text_settings(config).get("eos_token_id"))


def _context_length(path: Path, config: dict[str, Any]) -> int:
    settings = _text_settings(config)
    lengths = [settings[key] for key in CONTEXT_LENGTH_KEYS if isinstance(settings.get(key), int)]
    if not lengths:
        logger.warning("%s states no context length; taking %d", path / "config.json", ASSUMED_CONTEXT_LENGTH)
    return lengths[0] if lengths else ASSUMED_CONTEXT_LENGTH


def _text_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the language model, which models of several senses keep apart."""
    text_settings: dict[str, Any] = config.get("text_config") or {}
    return config | text_settings


def _num_embeddings(model: nn.Module) -> int:
    """Rows of the largest embedding, which is that of the tokens."""
    kinds = nn.Embedding | nn.QuantizedEmbedding
    return max(int(module["weight"].shape[0]) for module in model.modules() if isinstance(module, kinds))
