"""At any temperature the output has the law of plain decoding: short joint laws, sampled with fixed seeds.

Each test compares 6,000 sampled texts with exact probabilities by a chi-square test that would fail a right engine
once in a million seeds; the seeds are fixed, so it fails only if something changed.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mtplx.engine.drafters.base import Drafter
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.randomness import RandomKey
from mtplx.engine.sampling import TokenHistory, adjust, distribution
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Acceptance, Draft, Request, SamplingParams
from tests.engine.decoding import decode
from tests.fakes import ByteTokenizer, TabularTarget

VOCAB = 4
LENGTH = 4
PROMPT = (0, 1, 2, 0, 1)
NUM_SAMPLES = 6000
FALSE_ALARM_RATE = 1e-6

TARGET = TabularTarget(VOCAB, seed=1)
PARAMS = {
    "plain": SamplingParams(),
    "cold": SamplingParams(temperature=0.6),
    "cut": SamplingParams(temperature=0.9, top_p=0.8, min_p=0.05),
    "top-k": SamplingParams(temperature=1.3, top_k=2),
    "penalties": SamplingParams(
        repetition_penalty=1.4, presence_penalty=0.7, frequency_penalty=0.6, logit_bias={3: 0.8, 1: -0.5}
    ),
}


class Overconfident:
    """Wrong on purpose: draws its drafts from one distribution and reports another."""

    name = "other"

    def __init__(self, inner: Drafter) -> None:
        self._inner = inner

    def confidence(self, sequence: DecodedSequence) -> int:
        return self._inner.confidence(sequence)

    def propose(self, sequences: list[DecodedSequence], depths: list[int]) -> list[Draft]:
        drafts = self._inner.propose(sequences, depths)
        return [Draft(draft.tokens, [q**0.5 / (q**0.5).sum() for q in draft.distributions]) for draft in drafts]

    def observe(self, outcomes: object) -> None:
        self._inner.observe(outcomes)


def exact_law(params: SamplingParams) -> dict[tuple[int, ...], float]:
    """Probability of every text of plain decoding, from the definition."""
    law = {}
    for text in itertools.product(range(VOCAB), repeat=LENGTH):
        history, probability = TokenHistory(PROMPT), 1.0
        for position, token in enumerate(text):
            p = distribution(adjust(TARGET.logits((*PROMPT, *text[:position])), params, history), params)
            probability *= p[token]
            history.push(token)
        law[text] = probability
    return law


def p_value(params: SamplingParams, drafter: Drafter, depth: int, rule: Acceptance = "rejection") -> float:
    """Of the hypothesis that texts decoded with this drafter have the exact law."""
    speculator = Speculator(TARGET, {drafter.name: drafter}, ByteTokenizer())
    law = exact_law(params)
    counts = dict.fromkeys(law, 0)
    for seed in range(NUM_SAMPLES):
        seeded = replace(params, seed=seed)
        request = Request("law", PROMPT, LENGTH, seeded, depth=depth, drafter=drafter.name, acceptance=rule)
        tokens, _ = decode(speculator, request)
        counts[tuple(tokens)] += 1
    observed, expected = _pool_rare(np.array(list(counts.values())), NUM_SAMPLES * np.array(list(law.values())))
    assert observed[expected == 0.0].sum() == 0, "a text of probability 0 came out"
    possible = expected > 0.0
    return float(stats.chisquare(observed[possible], expected[possible]).pvalue)


def _pool_rare(observed: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Texts expected fewer than 8 times are counted together, as the chi-square approximation needs."""
    rare = (expected < 8.0) & (expected > 0.0)
    if not rare.any():
        return observed, expected
    return np.append(observed[~rare], observed[rare].sum()), np.append(expected[~rare], expected[rare].sum())


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_a_model_drafter_leaves_the_law(params: SamplingParams, depth: int) -> None:
    drafter = ModelDrafter("other", TabularTarget(VOCAB, seed=2))
    assert p_value(params, drafter, depth) > FALSE_ALARM_RATE


@pytest.mark.slow
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_copied_drafts_leave_the_law(params: SamplingParams) -> None:
    assert p_value(params, NgramDrafter(), 3) > FALSE_ALARM_RATE


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["block", "coupled"])
def test_every_rule_leaves_the_law_over_many_rounds(rule: Acceptance) -> None:
    drafter = ModelDrafter("other", TabularTarget(VOCAB, seed=2))
    assert p_value(PARAMS["penalties"], drafter, 3, rule) > FALSE_ALARM_RATE


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["block", "coupled"])
def test_numbers_that_serve_two_decisions_are_found(rule: Acceptance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong on purpose: `block` meets the numbers of a round again in the next, `coupled` one noise everywhere."""
    uniform, noise = RandomKey.uniform, RandomKey.noise
    monkeypatch.setattr(RandomKey, "uniform", lambda key, position, purpose, _=0: uniform(key, position, purpose))
    monkeypatch.setattr(RandomKey, "noise", lambda key, position, num_tokens: noise(key, 0, num_tokens))
    drafter = ModelDrafter("other", TabularTarget(VOCAB, seed=2))
    assert p_value(PARAMS["penalties"], drafter, 3, rule) < FALSE_ALARM_RATE


@pytest.mark.slow
def test_a_drafter_that_misreports_its_distribution_is_found() -> None:
    drafter = Overconfident(ModelDrafter("other", TabularTarget(VOCAB, seed=2, sharpness=3.0)))
    assert p_value(PARAMS["plain"], drafter, 3) < FALSE_ALARM_RATE
