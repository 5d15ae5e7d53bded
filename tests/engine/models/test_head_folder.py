"""A head on disk comes back as it was, and only for the model that it belongs to."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.fresh_block import block_like
from mtplx.engine.models.head_folder import Quantization, load_head, read_head_config, save_head
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.mtp import DraftHead, draft_head
from mtplx.kernels.accelerate import accelerate, is_accelerated
from tests.tiny_configs import TRANSFORMER
from tests.tiny_models import tiny_model, tiny_model_folder

TOKEN_IDS = np.array([1, 4, 9, 16, 250], dtype=np.int32)
HIDDEN, EMBEDDINGS = (mx.random.normal((1, 6, 64), key=mx.random.key(seed)) for seed in (1, 2))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(str(tiny_model_folder(tmp_path_factory.mktemp("models"), "qwen3")))


@pytest.fixture
def head(loaded: LoadedModel) -> DraftHead:
    block = block_like(loaded.model)
    block.projection.weight = block.projection.weight + mx.random.normal((64, 128), key=mx.random.key(3)) * 0.1
    return draft_head(loaded.model, block, TOKEN_IDS)


def save(path: Path, head: DraftHead, loaded: LoadedModel, quantization: Quantization | None = None) -> Path:
    told = {"acceptance": {"greedy": [0.5, 0.25]}, "provenance": {"seed": 7}}
    save_head(path / "head", head, loaded, quantization=quantization, **told)
    return path / "head"


def logits(head: DraftHead) -> mx.array:
    return head.project(head.block(HIDDEN, EMBEDDINGS))


@pytest.mark.parametrize("token_ids", [TOKEN_IDS, None])
def test_a_float_head_comes_back_bit_by_bit(
    token_ids: Any, head: DraftHead, loaded: LoadedModel, tmp_path: Path
) -> None:
    whole = draft_head(loaded.model, head.block, token_ids)
    given = load_head(save(tmp_path, whole, loaded), loaded)
    assert mx.array_equal(logits(given), logits(whole)).item()
    assert np.array_equal(given.token_ids, token_ids) if token_ids is not None else given.token_ids is None


def test_a_quantized_head_comes_back_with_its_products_rounded(
    head: DraftHead, loaded: LoadedModel, tmp_path: Path
) -> None:
    path = save(tmp_path, head, loaded, Quantization(bits=8, group_size=32))
    given = load_head(path, loaded)
    assert isinstance(given.block.projection, nn.QuantizedLinear)
    assert isinstance(head.block.projection, nn.Linear)  # what was saved stays as it is
    difference = mx.abs(logits(given) - logits(head)).max() / mx.abs(logits(head)).max()
    assert 0.0 < float(difference) < 0.05


def test_a_head_with_native_layers_is_saved_as_any_other(head: DraftHead, loaded: LoadedModel, tmp_path: Path) -> None:
    expected = logits(head)
    accelerate(head.block)
    given = load_head(save(tmp_path, head, loaded), loaded)
    assert mx.allclose(logits(given), expected, rtol=1e-3, atol=1e-3).item()


def test_the_folder_tells_of_its_head(head: DraftHead, loaded: LoadedModel, tmp_path: Path) -> None:
    config = read_head_config(save(tmp_path, head, loaded, Quantization(4, 64)))
    assert (config.target.architecture, config.target.hidden_size, config.target.vocab_size) == ("qwen3", 64, 296)
    assert config.layer == "mlx_lm.models.qwen3.TransformerBlock"
    assert (config.num_tokens, config.quantization) == (5, Quantization(4, 64))
    assert (config.acceptance, config.provenance) == ({"greedy": [0.5, 0.25]}, {"seed": 7})


@pytest.mark.parametrize(
    ("model_type", "changes", "named"),
    [
        ("qwen3", {"hidden_size": 32}, r"hidden size 64 \(here 32\)"),
        ("qwen3", {"vocab_size": 300}, r"vocab size 296 \(here 300\)"),
        ("llama", {}, r"architecture qwen3 \(here llama\), layer .*qwen3.TransformerBlock \(here .*llama"),
    ],
)
def test_the_head_of_another_model_is_refused(
    model_type: str, changes: dict[str, int], named: str, head: DraftHead, loaded: LoadedModel, tmp_path: Path
) -> None:
    path = save(tmp_path, head, loaded)
    other = load_model(str(tiny_model_folder(tmp_path, model_type, TRANSFORMER | changes)))
    with pytest.raises(ModelLoadError, match=f"is for a model with .*{named}.*train one with 'mtplx train-head'"):
        load_head(path, other)


def test_other_weights_are_warned_of_and_another_precision_is_not(
    head: DraftHead, loaded: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path, head, loaded)
    other = replace(loaded, model=tiny_model("qwen3", seed=1))
    coarse = replace(loaded, model=tiny_model("qwen3"))
    coarse.model.load_weights(weights_of(loaded.model))
    nn.quantize(coarse.model, 32, 4)
    with caplog.at_level(logging.WARNING):
        load_head(path, coarse)
        assert not caplog.records
        load_head(path, other)
        assert "made for other weights" in caplog.text


def weights_of(model: nn.Module) -> list[tuple[str, mx.array]]:
    return list(tree_flatten(model.parameters()))


def test_products_over_tokens_are_native_where_the_models_are(
    head: DraftHead, loaded: LoadedModel, tmp_path: Path
) -> None:
    path = save(tmp_path, head, loaded)
    fast = replace(loaded, model=tiny_model("qwen3"))
    fast.model.load_weights(weights_of(loaded.model))
    accelerate(fast.model)
    given = load_head(path, fast)
    assert is_accelerated(given.project) == is_accelerated(fast.model)
    assert mx.allclose(logits(given), logits(head), rtol=1e-3, atol=1e-2).item()


def no_config(path: Path) -> None:
    (path / "config.json").unlink()


def no_weights(path: Path) -> None:
    (path / "head.safetensors").unlink()


def broken_json(path: Path) -> None:
    (path / "config.json").write_text("{")


def damaged_weights(path: Path) -> None:
    (path / "head.safetensors").write_bytes(b"not weights")


def changed(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        told = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**told, **changes}))

    return change


def weights_changed(*gone: str, **more: mx.array) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        arrays = dict(mx.load(str(path / "head.safetensors")))
        kept = {name: array for name, array in arrays.items() if name not in gone}
        mx.eval(kept)
        mx.save_safetensors(str(path / "head.safetensors"), kept | more)

    return change


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (no_config, "has no config.json; name a folder that 'mtplx train-head' wrote"),
        (broken_json, "isn't valid JSON"),
        (changed(kind="model"), "doesn't describe a draft head"),
        (changed(version=2), "is of version 2, and this is for 1"),
        (changed(target={}), "isn't what a head is described by"),
        (changed(more=1), "isn't what a head is described by .*more"),
        (changed(num_tokens=6), "names 5 tokens where its config tells of 6"),
        (changed(quantization={"bits": 4, "group_size": 32}), "damaged or incomplete .*scales"),
        (no_weights, "head.safetensors is damaged or incomplete"),
        (damaged_weights, "head.safetensors is damaged or incomplete"),
        (weights_changed("norm.weight"), "damaged or incomplete .*norm.weight"),
        (weights_changed(more=mx.ones(3)), "damaged or incomplete .*more"),
        (weights_changed(token_ids=mx.array([1, 4, 9, 9, 250])), "don't ascend within the vocabulary"),
        (weights_changed(token_ids=mx.array([1, 4, 9, 16, 296])), "don't ascend within the vocabulary"),
    ],
)
def test_a_damaged_folder_is_refused_by_what_is_wrong(
    damage: Callable[[Path], None], complaint: str, head: DraftHead, loaded: LoadedModel, tmp_path: Path
) -> None:
    path = save(tmp_path, head, loaded)
    damage(path)
    with pytest.raises(ModelLoadError, match=f"(?s){complaint}") as caught:
        load_head(path, loaded)
    assert str(path) in str(caught.value)
