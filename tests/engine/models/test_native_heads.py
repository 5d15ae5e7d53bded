"""Checkpoints that bring a multi-token-prediction block keep it: every tensor is bound, and the block computes what its
family says."""

import json
import logging
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mtplx.engine.cache import RowCache
from mtplx.engine.models import native_heads
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.mtp import DraftHead
from mtplx.engine.rows import RowBatch, row_views
from tests.engine.models.plain_blocks import Array, plain_block
from tests.engine.models.published_heads import FAMILIES, Tensors, head_tensors, write_checkpoint
from tests.tiny_configs import VOCAB_SIZE

NUM_ROWS = 6
BY_ROWS = [model_type for model_type in FAMILIES if model_type != "deepseek_v3"]


def loaded_head(folder: Path, model_type: str) -> DraftHead:
    head = load_model(str(write_checkpoint(folder, model_type, head_tensors(model_type)))).draft_head
    assert head is not None
    return head


def random_rows(seed: int) -> mx.array:
    return mx.random.normal((NUM_ROWS, 64), key=mx.random.key(seed))


def as_published(model_type: str, hidden: mx.array, embeddings: mx.array) -> Array:
    family = FAMILIES[model_type]
    tensors = {
        name.removeprefix(family.layer): np.asarray(value, dtype=np.float64)
        for name, value in head_tensors(model_type).items()
    }
    rows = [np.asarray(each, dtype=np.float64) for each in (hidden, embeddings)]
    return plain_block(model_type, tensors, family.names, family.config, *rows)


def nearly_equal(given: mx.array, expected: Array) -> bool:
    return bool(np.abs(np.asarray(given) - expected).max() < 1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_block_computes_what_its_family_says(model_type: str, tmp_path: Path) -> None:
    block = loaded_head(tmp_path / "model", model_type).block
    hidden, embeddings = random_rows(3), random_rows(4)
    expected = as_published(model_type, hidden, embeddings)
    assert nearly_equal(block(hidden[None], embeddings[None])[0], expected)
    cache = block.make_cache()
    parts = [
        block(hidden[None, part], embeddings[None, part], cache)[0] for part in (slice(4), slice(4, 5), slice(5, 6))
    ]
    assert nearly_equal(mx.concatenate(parts), expected)


@pytest.mark.parametrize("model_type", BY_ROWS)
def test_the_block_runs_by_rows(model_type: str, tmp_path: Path) -> None:
    """Of two sequences at a time, in two steps."""
    block = loaded_head(tmp_path / "model", model_type).block
    inputs = [(random_rows(3), random_rows(4)), (random_rows(5), random_rows(6))]
    caches = [RowCache([block.window]) for _ in inputs]
    parts: list[list[mx.array]] = [[], []]
    for taken in [(slice(0, 4), slice(0, 1)), (slice(4, 6), slice(1, 6))]:
        hidden, embeddings = (
            mx.concatenate([rows[which][part] for rows, part in zip(inputs, taken, strict=True)])[:, None]
            for which in (0, 1)
        )
        counts = [part.stop - part.start for part in taken]
        batch = RowBatch([(cache, [0] * count) for cache, count in zip(caches, counts, strict=True)])
        output = block(hidden, embeddings, row_views(batch, 1)[0])[:, 0]
        for cache, part, rows, count in zip(caches, parts, mx.split(output, counts[:1]), counts, strict=True):
            part.append(rows)
            cache.extend(count)
            cache.commit(count)
    for part, rows in zip(parts, inputs, strict=True):
        assert nearly_equal(mx.concatenate(part), as_published(model_type, *rows))


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_model_is_the_same_as_without_a_head(model_type: str, tmp_path: Path) -> None:
    bare = load_model(str(write_checkpoint(tmp_path / "bare", model_type, {})))
    equipped = load_model(str(write_checkpoint(tmp_path / "equipped", model_type, head_tensors(model_type))))
    assert bare.draft_head is None
    tokens = mx.array([[5, 42, 79]])
    assert mx.array_equal(equipped.model(tokens), bare.model(tokens)).item()


def test_a_head_embeds_and_projects_as_its_model_does(tmp_path: Path) -> None:
    loaded = load_model(str(write_checkpoint(tmp_path / "model", "mimo", head_tensors("mimo"))))
    head = loaded.draft_head
    assert head is not None
    assert head.token_ids is None
    tokens = mx.array([[5, 42]])
    assert mx.array_equal(head.embed(tokens), loaded.model.model.embed_tokens(tokens)).item()
    hidden = loaded.model.model(tokens)
    assert head.project(hidden).shape == (1, 2, VOCAB_SIZE)
    assert mx.array_equal(head.project(hidden), loaded.model(tokens)).item()


def test_in_a_quantized_folder_the_blocks_products_are_quantized_alike(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", "mimo", head_tensors("mimo"))
    model = load_model(str(folder)).model
    nn.quantize(model, 32, 8)
    mx.save_safetensors(str(folder / "model-00001-of-00002.safetensors"), dict(tree_flatten(model.parameters())))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization": {"group_size": 32, "bits": 8}}))
    head = load_model(str(folder)).draft_head
    assert head is not None
    products = [part for part in head.block.modules() if isinstance(part, nn.Linear | nn.QuantizedLinear)]
    assert {(type(product), product.bits, product.group_size) for product in products} == {(nn.QuantizedLinear, 8, 32)}
    hidden, embeddings = random_rows(3), random_rows(4)
    expected = as_published("mimo", hidden, embeddings)
    difference = np.abs(np.asarray(head.block(hidden[None], embeddings[None])[0]) - expected).max()
    assert 0.0 < difference < 0.05 * np.abs(expected).max()


def without(tensors: Tensors, name: str) -> Tensors:
    return {each: value for each, value in tensors.items() if each != name}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_head_that_does_not_fit_is_left_out_with_a_warning(
    model_type: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head, family = head_tensors(model_type), FAMILIES[model_type]
    projection = f"{family.names[2]}.weight"
    for number, (tensors, named) in enumerate(
        [
            (without(head, f"{family.layer}self_attn.o_proj.weight"), "layer.self_attn.o_proj.weight"),
            (without(head, f"{family.names[0]}.weight"), "embedding_norm.weight"),
            (head | {f"{family.layer}self_attn.more.weight": mx.ones(3)}, "self_attn.more.weight"),
            (head | {projection: head[projection][:, :64]}, "projection.weight"),
        ]
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            loaded = load_model(str(write_checkpoint(tmp_path / str(number), model_type, tensors)))
        assert loaded.draft_head is None
        [message] = [record.getMessage() for record in caplog.records if record.name == native_heads.__name__]
        assert "is not used, since it doesn't fit" in message
        assert named in message


@pytest.mark.parametrize("model_type", ["deepseek_v3", "glm4_moe"])
def test_copies_of_embedding_and_output_head_are_not_missed(model_type: str, tmp_path: Path) -> None:
    copies = {"embed_tokens.weight": mx.ones((VOCAB_SIZE, 64)), "shared_head.head.weight": mx.ones((VOCAB_SIZE, 64))}
    folder = write_checkpoint(tmp_path / "model", model_type, head_tensors(model_type) | copies)
    head = load_model(str(folder)).draft_head
    assert head is not None
    assert not mx.array_equal(head.embed(mx.array([5])), mx.ones((1, 64))).item()
