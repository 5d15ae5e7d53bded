"""A model drafter serves many sequences at once, and none of them notices the others."""

from collections.abc import Sequence

import numpy as np
import pytest

from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.models.running import make_target
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.text.stream import TextStream
from mtplx.engine.types import Draft, Logits, Request, SamplingParams
from tests.fakes import ByteTokenizer, TabularCache, TabularTarget
from tests.tiny_models import tiny_model

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, frequency_penalty=0.5, seed=3)
PROMPTS = ((0, 1, 2, 3), (5,), tuple(i % 8 for i in range(150)), (7, 6, 5, 4, 3))
PARAMS = (SAMPLED, GREEDY, SAMPLED, SamplingParams(seed=8))
DEPTHS = (3, 5, 2, 1)


def sequence(prompt: Sequence[int], params: SamplingParams = GREEDY) -> DecodedSequence:
    request = Request("test", tuple(prompt), 40, params, depth=8, drafter="small")
    return DecodedSequence(request, TabularCache(), TextStream(ByteTokenizer().decode, request.prompt, ()))


def sequences() -> list[DecodedSequence]:
    return [sequence(*each) for each in zip(PROMPTS, PARAMS, strict=True)]


def accept(drafter: ModelDrafter, one: DecodedSequence, draft: Draft, num_accepted: int, then: int) -> None:
    """What a round does with a draft."""
    for token in (*draft.tokens[:num_accepted], then):
        one.append(token)
    if len(draft):
        drafter.observe([Outcome(one, draft, num_accepted)])


def assert_same(given: Draft, expected: Draft) -> None:
    assert (given.tokens, given.failed) == (expected.tokens, expected.failed)
    assert (given.distributions is None) == (expected.distributions is None)
    for q, alone in zip(given.distributions or (), expected.distributions or (), strict=True):
        np.testing.assert_array_equal(q, alone)


@pytest.mark.parametrize("kind", ["tabular", "llama", "mamba2"])
def test_a_draft_has_the_bits_that_it_has_alone(kind: str) -> None:
    """Through rounds of several outcomes; the long prompt is caught up with beside drafts of the others."""
    model: Target = TabularTarget(seed=2) if kind == "tabular" else make_target(tiny_model(kind))
    together, alone = ModelDrafter("small", model), ModelDrafter("small", model)
    ours, theirs = sequences(), sequences()
    for round_number in range(5):
        drafts = together.propose(ours, DEPTHS)
        assert [len(draft) for draft in drafts] == [3, 5, 0 if round_number < 2 else 2, 1]
        for index, draft in enumerate(drafts):
            [expected] = alone.propose([theirs[index]], [DEPTHS[index]])
            assert_same(draft, expected)
            num_accepted = min(len(draft), (index + round_number) % 4)
            accept(together, ours[index], draft, num_accepted, then=index)
            accept(alone, theirs[index], expected, num_accepted, then=index)


def test_one_forward_a_draft_position_serves_all() -> None:
    model = TabularTarget(seed=2)
    drafts = ModelDrafter("small", model).propose([sequence(PROMPTS[0]), sequence(PROMPTS[1])], [4, 2])
    assert [len(draft) for draft in drafts] == [4, 2]
    assert model.num_forwards == 4


class BrokenFor(TabularTarget):
    """Its logits after a token 6 are no numbers."""

    def logits(self, context: Sequence[int]) -> Logits:
        logits = super().logits(context)
        return logits * np.float32("nan") if context[-1] == 6 else logits


def test_logits_that_are_no_numbers_fail_their_sequence_alone() -> None:
    drafter, sound = ModelDrafter("small", BrokenFor(seed=2)), ModelDrafter("small", TabularTarget(seed=2))
    healthy = sequence((0, 1, 2))
    failed, draft = drafter.propose([sequence((1, 6)), healthy], [3, 1])
    assert failed == Draft(failed=True)
    assert_same(draft, sound.propose([healthy], [1])[0])


def test_a_sequence_that_failed_goes_on_where_it_was() -> None:
    model = BrokenFor(seed=2)
    drafter, text = ModelDrafter("small", model), sequence((*[1] * 100, 6))
    assert [draft.failed for _ in range(2) for draft in drafter.propose([text], [2])] == [False, True]
    text.append(1)
    [draft] = drafter.propose([text], [1])
    assert model.num_forwards == 3
    assert (len(draft), draft.failed) == (1, False)


class FailsOnce(TabularTarget):
    """The second forward raises, and its caches are of no further use."""

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        logits = super().forward(batch)
        if self.num_forwards == 2:
            for rows in batch:
                rows.cache.tokens[:] = [7] * len(rows.cache.tokens)
            raise RuntimeError("a bolt came loose")
        return logits


def test_a_forward_that_raises_leaves_no_rows_behind() -> None:
    model = FailsOnce(seed=2)
    drafter, both = ModelDrafter("small", model), [sequence((0, 1, 2)), sequence((3, 4))]
    drafter.propose(both, [1, 1])
    with pytest.raises(RuntimeError):
        drafter.propose(both, [3, 3])
    for draft, expected in zip(
        drafter.propose(both, [3, 3]),
        ModelDrafter("small", TabularTarget(seed=2)).propose(both, [3, 3]),
        strict=True,
    ):
        assert_same(draft, expected)


@pytest.mark.parametrize(("num_tokens", "length"), [(5, 3), (6, 3), (7, 2), (8, 1), (9, 0), (20, 0)])
def test_drafts_end_where_the_models_context_does(num_tokens: int, length: int) -> None:
    """The last draft token needs no row: a model of 8 rows says what comes ninth."""
    model = TabularTarget(seed=2)
    short, beside = ModelDrafter("small", model, context_length=8), sequence((0, 1, 2))
    drafts = short.propose([sequence([0] * num_tokens), beside], [3, 3])
    assert [len(draft) for draft in drafts] == [length, 3]
    assert not drafts[0].failed
