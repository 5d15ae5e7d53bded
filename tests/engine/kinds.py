"""Tiny models by kind, and speculators over them with all drafters: what the exactness of decoding is tested on."""

from pathlib import Path

import mlx.nn as nn

from mtplx.engine.assembly import make_speculator
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.speculative import Speculator
from mtplx.kernels.accelerate import accelerate
from tests.tiny_configs import CONFIGS
from tests.tiny_models import tiny_model_folder


class TinyModels:
    """By kind: an architecture of CONFIGS. A "native" one decodes with native kernels. A "coarse" one is like it, with
    weights of fewer bits: another model, which says the same but for some tokens. Each is loaded once, when asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, LoadedModel] = {}
        self._speculators: dict[str, Speculator] = {}

    def __getitem__(self, kind: str) -> LoadedModel:
        if kind not in self._loaded:
            self._loaded[kind] = self._load(kind)
        return self._loaded[kind]

    def speculator(self, kind: str) -> Speculator:
        """One with all drafters: `self` of two layers, or as few as run alone, and `model`, a coarse one."""
        if kind not in self._speculators:
            self._speculators[kind] = make_speculator(self[kind], draft=self[f"coarse {kind}"], self_draft_layers=2)
        return self._speculators[kind]

    def _load(self, kind: str) -> LoadedModel:
        *forms, architecture = kind.split()
        config = CONFIGS[architecture]
        if architecture == "llama" and "native" in forms:
            config = config | {"hidden_size": 64}  # so that quantization takes all of its products
        folder = self._folder / kind.replace(" ", "-")
        folder.mkdir()
        loaded = load_model(str(tiny_model_folder(folder, architecture, config)))
        if "coarse" in forms:
            _quantize(loaded.model, bits=4)
        elif "native" in forms:
            _quantize(loaded.model, bits=8)
            assert accelerate(loaded.model).failed == ()
        return loaded


def _quantize(model: nn.Module, bits: int) -> None:
    """The products of sizes for it; the others stay float32."""

    def has_sizes(_: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0

    nn.quantize(model, group_size=32, bits=bits, class_predicate=has_sizes)
