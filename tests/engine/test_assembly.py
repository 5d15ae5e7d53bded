"""An engine with a draft model of its own: loaded as any model is, and refused if it cannot draft for the target."""

import json
from pathlib import Path

import pytest

from mtplx.engine.assembly import load_draft_model, make_speculator
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.session import EngineSession, GenerationConfig
from mtplx.engine.types import Request, SamplingParams
from mtplx.kernels.layers import NativeDense
from mtplx.kernels.preparing import kernels_here
from mtplx.kernels.report import KernelReport
from tests.engine.decoding import begin, decode
from tests.kernels.availability import needs_native
from tests.tiny_configs import CONFIGS, VOCAB_SIZE
from tests.tiny_gguf import TinyGguf
from tests.tiny_models import EOS, tiny_model_folder

STOCK = KernelReport(False)
PROMPT = (40, 41, 42, 43, 50, 40, 41)
NEVER_ENDING = {EOS: -100.0}
GREEDY = SamplingParams(temperature=0.0, logit_bias=NEVER_ENDING)
SMALL = CONFIGS["qwen3"] | {"num_hidden_layers": 1, "hidden_size": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def target(folder: Path) -> LoadedModel:
    return load_model(str(tiny_model_folder(folder, "llama", seed=1)))


@pytest.fixture(scope="module")
def small(folder: Path) -> LoadedModel:
    """Another architecture, whose embedding is padded to another size."""
    draft = load_draft_model(str(tiny_model_folder(folder, "qwen3", SMALL | {"vocab_size": VOCAB_SIZE + 24})), STOCK)
    assert draft is not None
    return draft


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_greedy_text_is_that_of_plain_decoding(target: LoadedModel, small: LoadedModel, depth: int) -> None:
    rounds = make_speculator(target, draft=small)
    expected, _ = decode(rounds, Request("test", PROMPT, 24, GREEDY))
    tokens, sequence = decode(rounds, Request("test", PROMPT, 24, GREEDY, depth=depth, drafter="model"))
    assert tokens == expected
    assert sequence.speculation.num_drafted > 0


def test_a_sampled_draft_has_distributions_over_the_targets_tokens(target: LoadedModel, small: LoadedModel) -> None:
    rounds = make_speculator(target, draft=small)
    sampling = SamplingParams(temperature=1.5, seed=5)
    [draft] = rounds.draft([begin(rounds, Request("test", PROMPT, 24, sampling, depth=3, drafter="model"))])
    assert draft.distributions is not None
    assert [len(q) for q in draft.distributions] == [target.vocab_size] * 3


def test_a_copy_as_the_draft_model_is_always_accepted(target: LoadedModel) -> None:
    rounds = make_speculator(target, draft=target)
    for sampling in (GREEDY, SamplingParams(seed=5, logit_bias=NEVER_ENDING)):
        _, sequence = decode(rounds, Request("test", PROMPT, 24, sampling, depth=3, drafter="model"))
        assert sequence.speculation.num_accepted == sequence.speculation.num_drafted == 18


def test_text_goes_on_beyond_the_draft_models_context(folder: Path, target: LoadedModel) -> None:
    short = load_model(str(tiny_model_folder(folder, "qwen3", SMALL | {"max_position_embeddings": 16}, seed=2)))
    rounds = make_speculator(target, draft=short)
    expected, _ = decode(rounds, Request("test", PROMPT, 24, GREEDY))
    tokens, sequence = decode(rounds, Request("test", PROMPT, 24, GREEDY, depth=3, drafter="model"))
    assert tokens == expected
    assert 0 < sequence.speculation.num_drafts < sequence.speculation.num_rounds - 5


def test_without_a_draft_model_there_is_no_such_drafter(target: LoadedModel) -> None:
    assert load_draft_model(None, STOCK) is None
    assert set(make_speculator(target).drafters) == {"grammar", "ngram", "self"}


def test_the_two_models_may_be_files_of_different_formats(folder: Path, target: LoadedModel) -> None:
    TinyGguf().write(folder / "tiny.gguf")
    rounds = make_speculator(target, draft=load_model(str(folder / "tiny.gguf")))
    _, sequence = decode(rounds, Request("test", PROMPT, 12, GREEDY, depth=3, drafter="model"))
    assert sequence.speculation.num_drafted > 0


def test_a_model_with_another_tokenizer_is_refused(folder: Path, target: LoadedModel) -> None:
    path = tiny_model_folder(folder, "qwen3", SMALL, seed=3)
    file = path / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(tokenizer))
    first = target.tokenizer.encode("a")[0]
    with pytest.raises(ModelLoadError, match=f"token {first} is 'b' to it, not 'a'; choose a draft model with"):
        make_speculator(target, draft=load_model(str(path)))


@needs_native
def test_a_draft_model_is_as_fast_as_the_target(folder: Path) -> None:
    draft = load_draft_model(str(tiny_model_folder(folder, "qwen3", SMALL, seed=4)), kernels_here())
    assert draft is not None
    assert isinstance(draft.model.layers[0].mlp.up_proj, NativeDense)


def test_a_session_drafts_with_the_model_that_it_is_given(folder: Path) -> None:
    model, draft = (str(tiny_model_folder(folder, "llama", seed=seed)) for seed in (5, 6))
    config = GenerationConfig(model, max_tokens=12, logit_bias=NEVER_ENDING, drafter="model", draft_model=draft)
    with EngineSession(config) as session:
        text = "".join(session.generate(PROMPT))
        assert session.stats.num_drafted > 0
    with EngineSession(GenerationConfig(model, max_tokens=12, logit_bias=NEVER_ENDING, drafter="none")) as session:
        assert "".join(session.generate(PROMPT)) == text
