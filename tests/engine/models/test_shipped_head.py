"""Heads that come with the project go to the models they were trained for, and to no others."""

import logging
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from mtplx.engine.models.head_folder import save_head
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.shipped_head import with_shipped_head
from tests.engine.heads import random_head
from tests.tiny_models import tiny_model_folder


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedModel:
    return load_model(str(tiny_model_folder(tmp_path, "llama")))


@pytest.fixture
def heads(tmp_path: Path, loaded: LoadedModel) -> Path:
    head = random_head(loaded.model)
    save_head(tmp_path / "heads" / "tiny", head, loaded, quantization=None, acceptance={}, provenance={})
    return tmp_path / "heads"


def test_a_model_gets_the_head_that_was_trained_for_it(loaded: LoadedModel, heads: Path) -> None:
    assert with_shipped_head(loaded, heads).draft_head is not None
    assert with_shipped_head(replace(loaded, id="another name"), heads).draft_head is not None


def test_one_that_brings_its_own_keeps_that(loaded: LoadedModel, heads: Path) -> None:
    own = replace(loaded, draft_head=random_head(loaded.model))
    assert with_shipped_head(own, heads) is own


def test_other_weights_get_none(loaded: LoadedModel, heads: Path) -> None:
    loaded.model.model.norm.weight = loaded.model.model.norm.weight + mx.array(0.5)
    assert with_shipped_head(loaded, heads).draft_head is None


def test_a_model_whose_parts_nobody_finds_gets_none(loaded: LoadedModel, heads: Path) -> None:
    strange = replace(loaded, model=nn.Linear(4, 4))
    assert with_shipped_head(strange, heads) is strange


def test_without_any_all_is_well(loaded: LoadedModel, tmp_path: Path) -> None:
    assert with_shipped_head(loaded, tmp_path / "none").draft_head is None


def test_a_damaged_one_is_told_and_left_out(loaded: LoadedModel, heads: Path, caplog: pytest.LogCaptureFixture) -> None:
    (heads / "tiny" / "head.safetensors").write_bytes(b"no weights")
    with caplog.at_level(logging.WARNING):
        assert with_shipped_head(loaded, heads).draft_head is None
    assert "is not used" in caplog.text
