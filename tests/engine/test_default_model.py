"""The default model, from its GGUF: greedy text is that of plain decoding, whatever speculates."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from scipy.special import log_softmax

from mtplx.engine.assembly import load_draft_head, make_speculator
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.shipped_head import with_shipped_head
from mtplx.engine.models.target import Rows
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Request, SamplingParams
from mtplx.kernels.accelerate import is_accelerated
from mtplx.kernels.preparing import kernels_here, prepare_kernels, speed_up
from mtplx.kernels.report import KernelReport
from tests.engine.decoding import MistakenOracle, begin, decode, decode_scored, speculating
from tests.kernels.availability import needs_native

pytestmark = pytest.mark.slow

PROMPT = "def add(a, b):\n    return a + b\n\ndef add(a, b"
GREEDY = SamplingParams(temperature=0.0)
PROCESSED = SamplingParams(
    temperature=0.0, repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.2, logit_bias={28: 4.0, 30: -100}
)
NUM_TOKENS = 14


@pytest.fixture(scope="module", params=["stock", pytest.param("native", marks=needs_native)])
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    loaded = load_model(None)
    if request.param == "native":
        speed_up(loaded.model, prepare_kernels())
    return with_shipped_head(loaded)


@pytest.fixture(scope="module")
def speculator(loaded: LoadedModel) -> Speculator:
    is_native = is_accelerated(loaded.model)
    head = load_draft_head(None, loaded, kernels_here() if is_native else KernelReport(False))
    return make_speculator(loaded, head=head)


def request(loaded: LoadedModel, sampling: SamplingParams, depth: int = 0, drafter: str = "none") -> Request:
    prompt = tuple(loaded.tokenizer.encode(PROMPT))
    return Request("test", prompt, NUM_TOKENS, sampling, depth=depth, drafter=drafter)


@pytest.mark.parametrize("sampling", [GREEDY, PROCESSED], ids=["plain", "processed"])
def test_greedy_text_is_the_same_at_every_depth_and_with_every_drafter(
    loaded: LoadedModel, speculator: Speculator, sampling: SamplingParams
) -> None:
    expected, _ = decode(speculator, request(loaded, sampling))
    for drafter, depths in (("ngram", (1, 3, 8)), ("self", (1, 3, 8)), ("head", (3,))):
        for depth in depths:
            tokens, _ = decode(speculator, request(loaded, sampling, depth, drafter))
            assert tokens == expected, (drafter, depth)
    oracle = MistakenOracle(expected, chance=0.25, vocab_size=49152, seed=2)
    guided = Speculator(speculator.target, {"oracle": oracle}, loaded.tokenizer)
    for depth in (3, 8):
        tokens, sequence = decode(guided, request(loaded, sampling, depth, "oracle"))
        assert tokens == expected, ("oracle", depth)
        assert 0 < sequence.speculation.num_accepted < sequence.speculation.num_drafted


def test_plain_decoding_is_mlx_lms_own(loaded: LoadedModel, speculator: Speculator) -> None:
    """mlx-lm's forward on the whole text has, at each position, the token that was chosen as its likeliest."""
    asked = request(loaded, GREEDY)
    tokens, _ = decode(speculator, asked)
    text = [*asked.prompt, *tokens]
    logits = loaded.model(mx.array(text)[None])[0]
    assert logits.argmax(axis=-1)[len(asked.prompt) - 1 : -1].tolist() == tokens


@pytest.mark.parametrize("loaded", [pytest.param("native", marks=needs_native)], indirect=True)  # stock ops are slow
@pytest.mark.usefixtures("float_products")
def test_scores_are_those_of_a_separate_pass_and_the_same_bits_however_tokens_were_drafted(
    loaded: LoadedModel, speculator: Speculator
) -> None:
    params = SamplingParams(0.8, repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.2, seed=1)
    asked = replace(request(loaded, params), acceptance="coupled", num_logprobs=5)
    tokens, plain = decode_scored(speculator, asked)
    for drafter, depth in (("ngram", 3), ("ngram", "auto"), ("self", 3), ("head", 3)):
        assert decode_scored(speculator, speculating(asked, drafter, depth, "coupled")) == (tokens, plain)

    whole = replace(asked, prompt=(*asked.prompt, *tokens), max_tokens=0, scores_prompt=True)
    separate = begin(speculator, whole).prompt_scores
    assert len(separate) == len(whole.prompt) - 1
    logits = np.array(loaded.model(mx.array(whole.prompt)[None])[0].astype(mx.float32))
    by_definition = log_softmax(logits[:-1].astype(np.float64), axis=-1)
    for scores, start in ((plain, len(asked.prompt)), (separate, 1)):
        for score, row in zip(scores, by_definition[start - 1 :], strict=True):
            assert score.logprob == pytest.approx(row[score.token], abs=1e-4)
            assert [token for token, _ in score.top] == np.argsort(-row, kind="stable")[:5].tolist()
            assert [each for _, each in score.top] == pytest.approx(np.sort(row)[:-6:-1], abs=1e-4)


def test_a_row_has_the_same_bits_alone_and_in_company(loaded: LoadedModel, speculator: Speculator) -> None:
    target = speculator.target
    tokens = loaded.tokenizer.encode("The same bits, always.")
    alone, together, other = (target.new_cache() for _ in range(3))
    single = [target.forward([Rows(alone, [token], 1)])[0] for token in tokens]
    shared = target.forward([Rows(other, [5, 6], 1), Rows(together, tokens, len(tokens))])[1]
    np.testing.assert_array_equal(np.concatenate(single), shared)


@pytest.mark.parametrize("loaded", [pytest.param("native", marks=needs_native)], indirect=True)  # stock ops are slow
def test_the_head_that_comes_with_it_foresees_it(loaded: LoadedModel, speculator: Speculator) -> None:
    """Of free text, where nothing is to be copied, more than any lighter copy of the model does at its price."""
    chats = [
        "What should I take along on a walk in the mountains?",
        "Write a short letter to a friend who has moved to the sea.",
        "Explain why the sky is blue.",
    ]
    drafted, accepted = np.zeros(2), np.zeros(2)
    for chat in chats:
        rendered = loaded.tokenizer.render_chat([{"role": "user", "content": chat}])
        prompt = tuple(loaded.tokenizer.encode(rendered, add_special_tokens=False))
        _, sequence = decode(speculator, Request("test", prompt, 64, GREEDY, depth=2, drafter="head"))
        stats = sequence.speculation
        drafted += stats.num_drafts, stats.num_drafted
        accepted += sum(stats.accepted_histogram[1:]), stats.num_accepted
    assert accepted[0] > 0.4 * drafted[0]
    assert accepted[1] > 0.3 * drafted[1]
