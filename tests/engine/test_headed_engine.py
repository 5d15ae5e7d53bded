"""An engine with a draft head, which is named or which the model brings along: who may use it, and that it is exact."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models import llama

from mtplx.engine.assembly import load_draft_head, make_speculator
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.head_folder import save_head
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.mtp import DraftHead
from mtplx.engine.session import EngineSession, GenerationConfig
from mtplx.engine.types import HEAD, Request, SamplingParams
from mtplx.kernels.layers import NativeDense
from mtplx.kernels.preparing import kernels_here
from mtplx.kernels.report import KernelReport
from tests.engine.decoding import decode
from tests.engine.heads import random_head
from tests.engine.models.published_heads import FAMILIES, head_tensors, write_checkpoint
from tests.kernels.availability import needs_native
from tests.tiny_models import EOS, tiny_model_folder

STOCK = KernelReport(False)
PROMPT = (40, 41, 42, 43, 50, 40, 41)
NEVER_ENDING = {EOS: -100.0}
FEW = {token: 30.0 for token in (40, 41, 43)} | NEVER_ENDING  # likely ones, so that a head is right at times


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedModel:
    return load_model(str(tiny_model_folder(tmp_path, "llama")))


def saved(path: Path, loaded: LoadedModel) -> Path:
    save_head(path, random_head(loaded.model), loaded, quantization=None, acceptance={}, provenance={})
    return path


def test_a_session_drafts_with_the_head_that_it_is_given(tmp_path: Path, loaded: LoadedModel) -> None:
    folder = saved(tmp_path / "head", loaded)
    config = GenerationConfig(loaded.source, max_tokens=12, logit_bias=NEVER_ENDING, drafter="none")
    with EngineSession(config) as session:
        text = "".join(session.generate(PROMPT))
    with EngineSession(replace(config, drafter=HEAD, speculative_depth=3, draft_head=folder)) as session:
        assert "".join(session.generate(PROMPT)) == text
        assert session.stats.num_drafted > 0


def test_a_head_that_the_model_brings_along_is_used_unless_another_is_named(
    tmp_path: Path, loaded: LoadedModel
) -> None:
    folder = saved(tmp_path / "head", loaded)
    assert load_draft_head(None, loaded, STOCK) is None
    own = replace(loaded, draft_head=random_head(loaded.model))
    assert load_draft_head(None, own, STOCK) is own.draft_head
    assert load_draft_head(folder, own, STOCK) is not own.draft_head
    assert load_draft_head(Path("none"), own, STOCK) is None


@needs_native
def test_a_head_is_as_fast_as_its_model(tmp_path: Path, loaded: LoadedModel) -> None:
    head = load_draft_head(saved(tmp_path / "head", loaded), loaded, kernels_here())
    assert head is not None
    assert isinstance(head.block.projection, NativeDense)


def test_a_head_is_asked_before_models_and_after_what_copies(loaded: LoadedModel) -> None:
    rounds = make_speculator(loaded, head=random_head(loaded.model), draft=loaded)
    assert tuple(rounds.drafters) == ("grammar", "ngram", HEAD, "model", "self")
    assert HEAD not in make_speculator(loaded).drafters


def broken(head: DraftHead) -> DraftHead:
    def project(_: mx.array) -> mx.array:
        raise RuntimeError("it is broken")

    return replace(head, project=project)


class Headless(llama.Model):
    """Keeps its output head where nobody looks for one."""

    def __call__(self, inputs: mx.array, cache: object = None) -> mx.array:
        return self.product(self.model(inputs, cache))


def hide_the_output_head(loaded: LoadedModel) -> None:
    loaded.model.product = loaded.model.pop("lm_head")
    loaded.model.__class__ = Headless


@pytest.mark.parametrize(
    ("spoil_model", "spoil_head", "complaint"),
    [
        (lambda loaded: None, broken, "the draft head does not run .*it is broken"),
        (hide_the_output_head, lambda head: head, "hidden states of tiny-llama-0 are out of reach"),
    ],
    ids=["it does not run", "hidden states are out of reach"],
)
def test_a_head_that_cannot_be_used_is_refused_if_named_and_else_left_out(
    loaded: LoadedModel,
    spoil_model: Callable[[LoadedModel], None],
    spoil_head: Callable[[DraftHead], DraftHead],
    complaint: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = spoil_head(random_head(loaded.model))
    spoil_model(loaded)
    with pytest.raises(ModelLoadError, match=complaint):
        make_speculator(loaded, head=head)
    with caplog.at_level(logging.WARNING):
        assert HEAD not in make_speculator(replace(loaded, draft_head=head), head=head).drafters
    assert "brings along is not used" in caplog.text


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_head_of_a_checkpoint_changes_no_text(model_type: str, tmp_path: Path) -> None:
    loaded = load_model(str(write_checkpoint(tmp_path / "model", model_type, head_tensors(model_type))))
    rounds = make_speculator(loaded, head=load_draft_head(None, loaded, STOCK))
    for params in (SamplingParams(temperature=0.0, logit_bias=NEVER_ENDING), SamplingParams(seed=4, logit_bias=FEW)):
        plain = Request("test", PROMPT, 12, params, acceptance="coupled")
        expected, _ = decode(rounds, plain)
        tokens, sequence = decode(rounds, replace(plain, drafter=HEAD, depth=3))
        assert tokens == expected
        assert sequence.speculation.num_drafted > 0


def test_what_the_planner_makes_of_a_head_changes_no_text(loaded: LoadedModel) -> None:
    rounds = make_speculator(loaded, head=random_head(loaded.model))
    for params in (SamplingParams(temperature=0.0, frequency_penalty=0.8, logit_bias=FEW), SamplingParams(seed=4)):
        plain = Request("test", PROMPT, 40, params, acceptance="coupled")
        expected, _ = decode(rounds, plain)
        for drafter in (HEAD, "auto"):
            planned = replace(plain, drafter=drafter, depth=8, auto_depth=True)
            assert decode(rounds, planned)[0] == expected
