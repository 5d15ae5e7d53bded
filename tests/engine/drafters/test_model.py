"""A model drafter draws from its model and keeps its own cache in step with the text."""

from collections.abc import Sequence

import numpy as np
import pytest

from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.models.target import Rows
from mtplx.engine.sampling import TokenHistory, adjust, distribution
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Logits, Request, SamplingParams
from tests.engine.decoding import begin, decode, step
from tests.fakes import ByteTokenizer, TabularTarget

PROMPT = (0, 1, 2, 3)


def speculator(drafter: ModelDrafter, target: TabularTarget | None = None) -> Speculator:
    return Speculator(target or TabularTarget(seed=1), {drafter.name: drafter}, ByteTokenizer())


def request(params: SamplingParams, prompt: tuple[int, ...] = PROMPT, max_tokens: int = 40, depth: int = 3) -> Request:
    return Request("test", prompt, max_tokens, params, depth=depth, drafter="small")


def test_a_draft_carries_the_distributions_after_the_requests_own_processors() -> None:
    params = SamplingParams(temperature=0.8, frequency_penalty=1.0, top_p=0.9, seed=3)
    model = TabularTarget(seed=2)
    rounds = speculator(ModelDrafter("small", model))
    [draft] = rounds.draft([begin(rounds, request(params))])
    history, context = TokenHistory(PROMPT), list(PROMPT)
    assert len(draft) == 3
    for token, q in zip(draft.tokens, draft.distributions, strict=True):
        np.testing.assert_array_equal(q, distribution(adjust(model.logits(context), params, history), params))
        assert q[token] > 0.0
        history.push(token)
        context.append(token)


def test_a_greedy_draft_is_one_hot() -> None:
    rounds = speculator(ModelDrafter("small", TabularTarget(seed=2)))
    [draft] = rounds.draft([begin(rounds, request(SamplingParams(temperature=0.0)))])
    assert draft.distributions is None


def test_a_copy_of_the_target_is_always_accepted() -> None:
    rounds = speculator(ModelDrafter("small", TabularTarget(seed=1)))
    for params in (SamplingParams(temperature=0.0), SamplingParams(seed=5)):
        _, sequence = decode(rounds, request(params))
        stats = sequence.speculation
        assert stats.num_accepted == stats.num_drafted == 30
        assert stats.num_rounds == 10


class Watched(TabularTarget):
    """Notes each row it forwards, as the text that ends with it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed)
        self.rows: list[tuple[int, ...]] = []

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        for rows in batch:
            text = [*rows.cache.tokens, *rows.tokens]
            self.rows += [tuple(text[:end]) for end in range(len(rows.cache.tokens) + 1, len(text) + 1)]
        return super().forward(batch)


def test_no_row_is_forwarded_twice() -> None:
    """Whatever is accepted: each round costs one forward for what was emitted, and one for each draft token but one."""
    model = Watched(seed=2)
    rounds = speculator(ModelDrafter("small", model))
    _, sequence = decode(rounds, request(SamplingParams(seed=1)))
    stats = sequence.speculation
    assert 0 < stats.num_accepted < stats.num_drafted
    assert model.num_forwards == stats.num_drafted
    assert len(set(model.rows)) == len(model.rows)


@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), SamplingParams(seed=6)], ids=["greedy", "sampled"])
def test_a_draft_asked_for_once_more_is_the_same(params: SamplingParams) -> None:
    rounds = speculator(ModelDrafter("small", TabularTarget(seed=2)))
    expected, _ = decode(rounds, request(params))
    sequence = begin(rounds, request(params))
    while sequence.reason is None:
        [first] = rounds.draft([sequence])
        [again] = rounds.draft([sequence])
        assert (again.tokens, again.failed) == (first.tokens, False)
        step(rounds, sequence)
    assert sequence.tokens[len(PROMPT) :] == expected


def test_a_long_prompt_is_caught_up_with_in_chunks_without_drafts() -> None:
    model = TabularTarget(seed=2)
    rounds = speculator(ModelDrafter("small", model))
    sequence = begin(rounds, request(SamplingParams(seed=1), prompt=tuple(i % 8 for i in range(150))))
    lengths = []
    for _ in range(3):
        lengths.append(len(rounds.draft([sequence])[0]))
    assert lengths == [0, 0, 3]


def test_sequences_do_not_share_the_drafters_cache() -> None:
    rounds = speculator(ModelDrafter("small", TabularTarget(seed=2)))
    alone, _ = decode(rounds, request(SamplingParams(seed=1)))
    first = begin(rounds, request(SamplingParams(seed=1)))
    second = begin(rounds, request(SamplingParams(seed=2), prompt=(7, 6, 5)))
    while first.reason is None or second.reason is None:
        for sequence in (first, second):
            if sequence.reason is None:
                step(rounds, sequence)
    assert first.tokens[len(PROMPT) :] == alone


class Broken(TabularTarget):
    """One of its logits is never a number."""

    def logits(self, context: Sequence[int]) -> Logits:
        logits = super().logits(context)
        logits[3] = np.nan
        return logits


@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), SamplingParams(seed=6)], ids=["greedy", "sampled"])
def test_a_model_that_gives_no_numbers_costs_drafts_and_never_output(params: SamplingParams) -> None:
    """A distribution with NaN in it would have every token accepted."""
    plain, _ = decode(Speculator(TabularTarget(seed=1), {}, ByteTokenizer()), request(params, depth=0))
    rounds = speculator(ModelDrafter("small", Broken(seed=2)))
    sequence = begin(rounds, request(params))
    records = []
    while sequence.reason is None:
        records.append(step(rounds, sequence).record)
    assert sequence.tokens[len(PROMPT) :] == plain
    assert [(record.num_drafted, record.draft_failed) for record in records[:-1]] == [(0, True)] * 39
    assert not records[-1].draft_failed  # the last token is not worth a draft
