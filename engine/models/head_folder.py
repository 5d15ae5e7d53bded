"""A trained draft head on disk: `head.safetensors` with the block's weights, `config.json` with all that is told of it.

Knows the two files and what makes a head belong to a model. Does not know how heads are trained.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.mtp import DraftHead, MtpBlock, draft_head
from mtplx.engine.models.parts import fresh_last_layer, hidden_size, plain_weight, plain_weights
from mtplx.engine.survival import Promise

logger = logging.getLogger(__name__)

KIND = "mtplx-head"
VERSION = 1
_CONFIG, _WEIGHTS, _TOKEN_IDS = "config.json", "head.safetensors", "token_ids"


@dataclass(frozen=True)
class HeadTarget:
    """What tells the model that a head belongs to. `fingerprint` is of its norms, which quantization leaves as they
    are."""

    architecture: str
    hidden_size: int
    vocab_size: int
    fingerprint: str


@dataclass(frozen=True)
class Quantization:
    """Of a head's products on disk, with a scale for each group of weights."""

    bits: int
    group_size: int


@dataclass(frozen=True)
class HeadConfig:
    """What `config.json` tells.

    `layer` names the class of the block's decoder layer, `eps` is that of its norms, `num_tokens` the size of the part
    of the vocabulary that it drafts from (None: all of it). `acceptance` is what was measured of the head, and
    `provenance` how it was made, for people.
    """

    target: HeadTarget
    layer: str
    eps: float
    window: int | None
    num_tokens: int | None
    quantization: Quantization | None
    acceptance: Mapping[str, Any]
    provenance: Mapping[str, Any]


def save_head(
    path: Path,
    head: DraftHead,
    loaded: LoadedModel,
    *,
    quantization: Quantization | None,
    acceptance: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> None:
    """Write the folder at `path`, in place of what was there, with weights in float32 or quantized. `head` stays as it
    is."""
    block = head.block
    config = HeadConfig(
        head_target(loaded),
        _class_name(block.layer),
        block.norm.eps,
        block.window,
        None if head.token_ids is None else len(head.token_ids),
        quantization,
        acceptance,
        provenance,
    )
    twin: nn.Module = _empty_block(loaded, config)
    twin.load_weights(list(plain_weights(block).items()))
    if quantization is not None:
        _quantize(twin, quantization)
    weights = dict(tree_flatten(twin.parameters()))
    if head.token_ids is not None:
        weights[_TOKEN_IDS] = mx.array(head.token_ids.astype(np.int32))
    path.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path / _WEIGHTS), weights)
    (path / _CONFIG).write_text(json.dumps({"kind": KIND, "version": VERSION, **asdict(config)}, indent=2) + "\n")


def load_head(path: Path, loaded: LoadedModel) -> DraftHead:
    """The head in the folder at `path`, for this model; its product over tokens is native if the model's are by now.

    Raises ModelLoadError when the folder is no head, is damaged, or belongs to another model.
    """
    config = read_head_config(path)
    _check_belongs(path, config, loaded)
    try:
        arrays: Any = mx.load(str(path / _WEIGHTS))
        token_ids = _token_ids(arrays.pop(_TOKEN_IDS, None), config)
        block = _empty_block(loaded, config)
        if config.quantization is not None:
            _quantize(block, config.quantization)
        module: nn.Module = block
        module.load_weights(list(arrays.items()))
        mx.eval(module.parameters())
        return replace(draft_head(loaded.model, block, token_ids), promise=_promise(config.acceptance))
    except Exception as error:  # MLX raises RuntimeError and ValueError for what it reads and binds
        file = path / _WEIGHTS
        raise ModelLoadError(f"{file} is damaged or incomplete ({error}); train or copy the head again") from error


def read_head_config(path: Path) -> HeadConfig:
    """What the folder tells of its head. Raises ModelLoadError."""
    file = path / _CONFIG
    try:
        told = json.loads(file.read_text())
    except OSError:
        raise ModelLoadError(f"{path} has no {_CONFIG}; name a folder that 'mtplx train-head' wrote") from None
    except ValueError as error:
        raise ModelLoadError(f"{file} isn't valid JSON ({error}); train or copy the head again") from error
    if not isinstance(told, dict) or told.pop("kind", None) != KIND:
        raise ModelLoadError(f"{file} doesn't describe a draft head; name a folder that 'mtplx train-head' wrote")
    if (version := told.pop("version", None)) != VERSION:
        raise ModelLoadError(f"{file} is of version {version}, and this is for {VERSION}; train the head again")
    try:
        told["target"] = HeadTarget(**told["target"])
        if told["quantization"] is not None:
            told["quantization"] = Quantization(**told["quantization"])
        return HeadConfig(**told)
    except (KeyError, TypeError) as error:
        raise ModelLoadError(f"{file} isn't what a head is described by ({error}); train or copy it again") from error


def head_target(loaded: LoadedModel) -> HeadTarget:
    """What a head of this model is known by."""
    norms = [
        np.asarray(plain_weight(module).astype(mx.float16)).tobytes()
        for name, module in sorted(loaded.model.named_modules(), key=lambda named: named[0])
        if "Norm" in type(module).__name__ and "weight" in module
    ]
    fingerprint = hashlib.blake2b(b"".join(norms), digest_size=16).hexdigest()
    return HeadTarget(loaded.architecture, hidden_size(loaded.model), loaded.vocab_size, fingerprint)


def _check_belongs(path: Path, config: HeadConfig, loaded: LoadedModel) -> None:
    """Raises ModelLoadError when the head is for models of another shape. Other weights are warned of: drafts will be
    poorer, and nothing else, and fine-tuned models may well share a head."""
    wanted, found = asdict(config.target), asdict(head_target(loaded))
    wanted["layer"], found["layer"] = config.layer, _class_name(fresh_last_layer(loaded.model))
    same_weights = wanted.pop("fingerprint") == found.pop("fingerprint")
    differences = [
        f"{name.replace('_', ' ')} {wanted[name]} (here {found[name]})"
        for name in wanted
        if wanted[name] != found[name]
    ]
    if differences:
        raise ModelLoadError(
            f"the draft head in {path} is for a model with {', '.join(differences)}, not for {loaded.id}; "
            "name the head of this model, or train one with 'mtplx train-head'"
        )
    if not same_weights:
        logger.warning(
            "the draft head in %s is made for other weights than %s has: it may guess poorly", path, loaded.id
        )


def _empty_block(loaded: LoadedModel, config: HeadConfig) -> MtpBlock:
    layer = fresh_last_layer(loaded.model)
    return MtpBlock(layer, config.target.hidden_size, config.eps, config.window)


def _quantize(block: nn.Module, quantization: Quantization) -> None:
    """In place, the products that can be."""

    def fits(path: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % quantization.group_size == 0

    nn.quantize(block, quantization.group_size, quantization.bits, class_predicate=fits)


def _token_ids(array: mx.array | None, config: HeadConfig) -> npt.NDArray[np.int32] | None:
    """Raises ValueError if they aren't what the config tells."""
    num_tokens = None if array is None else array.size
    if num_tokens != config.num_tokens:
        raise ValueError(f"it names {num_tokens} tokens where its config tells of {config.num_tokens}")
    if array is None:
        return None
    token_ids = np.asarray(array)
    if (np.diff(token_ids) <= 0).any() or token_ids[0] < 0 or token_ids[-1] >= config.target.vocab_size:
        raise ValueError("its tokens don't ascend within the vocabulary")
    return token_ids


def _promise(acceptance: Mapping[str, Any]) -> Promise | None:
    """Of the first token, as far as it was measured."""
    rates = [(acceptance.get(name) or [None])[0] for name in ("survival", "expected")]
    return Promise(*rates) if all(isinstance(rate, float) for rate in rates) else None


def _class_name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
