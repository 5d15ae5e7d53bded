"""Draft heads that checkpoints bring along: multi-token-prediction blocks trained with the model itself.

mlx-lm drops their tensors; here they are read and bound. Knows the published layouts (as vLLM and sglang read them) of
DeepSeek-V3, GLM-4.5, Qwen3-Next, Qwen3.5 and MiMo. In all of them the block takes the hidden state after the target's
final norm, and the target's own embedding and output head serve it.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mtplx.engine.models.mtp import DraftHead, MtpBlock, draft_head
from mtplx.engine.models.parts import fresh_last_layer, hidden_size
from mtplx.engine.models.precision import float_type

logger = logging.getLogger(__name__)

Tensors = dict[str, mx.array]


@dataclass(frozen=True)
class _Layout:
    """How a family names the tensors of its first block, all below `prefix`, in which {} is the number of layers.

    `names` gives our names for what is around the decoder layer, whose tensors lie below `layer`. `shared` are copies
    of what the target has.
    """

    prefix: str
    layer: str
    names: Mapping[str, str]
    shared: tuple[str, ...] = ()
    norms_from_zero: bool = False  # their weights are stored less 1
    hidden_first: bool = False  # in what the projection takes


_LIKE_DEEPSEEK = _Layout(
    "model.layers.{}.",
    "",
    {
        "enorm.weight": "embedding_norm.weight",
        "hnorm.weight": "hidden_norm.weight",
        "eh_proj.weight": "projection.weight",
        "shared_head.norm.weight": "norm.weight",
    },
    shared=("embed_tokens.weight", "shared_head.head.weight"),
)
_LIKE_QWEN = _Layout(
    "mtp.",
    "layers.0.",
    {
        "pre_fc_norm_embedding.weight": "embedding_norm.weight",
        "pre_fc_norm_hidden.weight": "hidden_norm.weight",
        "fc.weight": "projection.weight",
        "norm.weight": "norm.weight",
    },
    norms_from_zero=True,
)
_LIKE_MIMO = _Layout(
    "model.mtp_layers.0.",
    "",
    {
        "token_layernorm.weight": "embedding_norm.weight",
        "hidden_layernorm.weight": "hidden_norm.weight",
        "input_proj.weight": "projection.weight",
        "final_layernorm.weight": "norm.weight",
    },
    hidden_first=True,
)
_LAYOUTS = {
    "deepseek_v3": _LIKE_DEEPSEEK,
    "glm4_moe": _LIKE_DEEPSEEK,
    "qwen3_next": _LIKE_QWEN,
    "qwen3_5": _LIKE_QWEN,
    "qwen3_5_moe": _LIKE_QWEN,
    "mimo": _LIKE_MIMO,
}


def native_head(path: Path, model: nn.Module, quantization: Mapping[str, Any] | None) -> DraftHead | None:
    """The head in the folder that `model` was loaded from; None if it has none.

    Its products are quantized as those of the model, if `quantization`, mlx-lm's settings, says how. One that doesn't
    fit the model is left out, with a warning.
    """
    layout = _LAYOUTS.get(type(model).__module__.rpartition(".")[2])
    if layout is None:
        return None
    try:
        tensors = _read(path, layout.prefix.format(len(model.layers)))
        return draft_head(model, _bind(tensors, layout, model, quantization)) if tensors else None
    except Exception as error:  # as many kinds as tensors can be wrong in
        logger.warning("the draft head that %s brings along is not used, since it doesn't fit: %s", path, error)
        return None


def _read(path: Path, prefix: str) -> Tensors:
    """The tensors below `prefix`, by the rest of their names; arrays are read only once they are looked at."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        files = json.loads(index.read_text())["weight_map"]
        places = sorted({path / file for name, file in files.items() if name.startswith(prefix)})
    else:
        places = sorted(path.glob("*.safetensors"))
    tensors: dict[str, mx.array] = {}
    for place in places:
        arrays: Any = mx.load(str(place))
        tensors |= {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return tensors


def _bind(tensors: Tensors, layout: _Layout, model: nn.Module, quantization: Mapping[str, Any] | None) -> MtpBlock:
    """Raises ValueError naming tensors that are missing, left over or of another shape."""
    given = {name: value for name, value in tensors.items() if name not in layout.shared}
    if layout.norms_from_zero:
        given = {name: value + 1.0 if "norm" in name else value for name, value in given.items()}
    around = {layout.names[name]: given.pop(name) for name in layout.names if name in given}
    if layout.hidden_first and "projection.weight" in around:
        hidden_half, embedding_half = mx.split(around["projection.weight"], 2, axis=1)
        around["projection.weight"] = mx.concatenate([embedding_half, hidden_half], axis=1)
    layer, others = _parted(given, layout.layer)
    if others:
        raise ValueError(f"it has {', '.join(sorted(others))} too")
    eps = model.model.norm.eps
    block = MtpBlock(fresh_last_layer(model), hidden_size(model), eps)
    module: nn.Module = block
    module.load_weights([*around.items(), *_layer_weights(layer, model).items()])
    module.eval()
    if float_type() == mx.float32:
        module.set_dtype(mx.float32)
    if quantization is not None:
        _quantize(module, model, quantization)
    mx.eval(module.parameters())
    return block


def _parted(tensors: Tensors, prefix: str) -> tuple[Tensors, Tensors]:
    """Those of the first layer, by the rest of their names, and those that belong to no layer."""
    first = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    return first, {name: value for name, value in tensors.items() if prefix and not name.startswith("layers.")}


def _layer_weights(tensors: Tensors, model: nn.Module) -> Tensors:
    """The tensors of a decoder layer as mlx-lm names and holds them, for the block."""
    # The model itself knows how to turn what is published for a layer into its own. Norms that are stored less 1 it
    # would shift only where it sees the rest of a checkpoint, so these stay out of it.
    last = f"layers.{len(model.layers) - 1}."
    norms = {name: value for name, value in tensors.items() if "norm" in name}
    others = {f"model.{last}{name}": value for name, value in tensors.items() if name not in norms}
    turned = {name.partition(last)[2]: value for name, value in model.sanitize(others).items()}
    return {f"layer.{name}": value for name, value in (norms | turned).items()}


def _quantize(block: nn.Module, model: nn.Module, quantization: Mapping[str, Any]) -> None:
    """As the model's products are: in place."""
    own_choice = getattr(model, "quant_predicate", None)

    def choose(path: str, module: nn.Module) -> Any:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % quantization["group_size"]:
            return False
        return True if own_choice is None else own_choice(path, module)

    form = {name: quantization[name] for name in ("group_size", "bits", "mode") if name in quantization}
    nn.quantize(block, class_predicate=choose, **form)
