"""A head drafter foresees tokens from the target's true hidden states, keeps in step with texts, and changes none."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mtplx.engine.depth import Worth
from mtplx.engine.drafters.calibration import Calibration
from mtplx.engine.drafters.head import HeadDrafter
from mtplx.engine.models.mtp import DraftHead
from mtplx.engine.models.running import make_target
from mtplx.engine.models.running_head import (
    Foreseen,
    FusedHead,
    NativeRowHead,
    Pairs,
    RowHead,
    RunningHead,
    SequentialHead,
    running_head,
)
from mtplx.engine.models.target import Rows
from mtplx.engine.sampling import TokenHistory, adjust, distribution
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import HEAD, MOST_HIDDEN_ROWS, Acceptance, Draft, Request, SamplingParams
from mtplx.engine.vocabulary_part import PartOfVocabulary
from tests.engine.decoding import begin, decode, speculating
from tests.engine.grammars import Automaton
from tests.engine.heads import headed_model, plain_logits, random_head, states_of
from tests.fakes import ByteTokenizer
from tests.kernels.availability import needs_native
from tests.tiny_configs import VOCAB_SIZE
from tests.tiny_models import EOS

NATIVE = [pytest.param(f"native {kind}", marks=needs_native) for kind in ("llama", "gemma3_text")]
ALL_KINDS = ["llama", "windowed gemma3_text", "deepseek_v3", "qwen3_next", *NATIVE]
KINDS = pytest.mark.parametrize("kind", ALL_KINDS)
FEW_KINDS = pytest.mark.parametrize("kind", ["llama", "deepseek_v3", *NATIVE[:1]])  # one for each way to run a head
PROMPT = tuple((5 + 37 * place) % 250 for place in range(13))
GREEDY = SamplingParams(temperature=0.0)
PROCESSED = SamplingParams(temperature=0.8, frequency_penalty=1.0, top_p=0.9, seed=3)
PART = np.arange(1, VOCAB_SIZE, 3, dtype=np.int32)
# Few tokens are likely, so that a head that knows nothing is right at times, and no text ends early.
FEW = {token: 30.0 for token in (40, 41, 43)} | {EOS: -100.0}
NO_CUT = SamplingParams(seed=3)
ONLY_40 = Automaton(VOCAB_SIZE, {0: {40: 0}})


class AnyTokenizer(ByteTokenizer):
    """Of models with more tokens than there are bytes."""

    def decode(self, tokens: Sequence[int]) -> str:
        return super().decode([token % 256 for token in tokens])


def rounds_of(kind: str, part: np.ndarray | None = None) -> tuple[Speculator, DraftHead]:
    model = headed_model(kind)
    head = random_head(model, part)
    drafter = HeadDrafter(
        running_head(head), None if part is None else PartOfVocabulary(part.astype(np.int64), VOCAB_SIZE)
    )
    return Speculator(make_target(model), {HEAD: drafter}, AnyTokenizer()), head


def request(params: SamplingParams = GREEDY, prompt: Sequence[int] = PROMPT, depth: int = 3) -> Request:
    return Request("test", tuple(prompt), 60, params, depth=depth, drafter=HEAD, acceptance="coupled")


def play(rounds: Speculator, sequence: DecodedSequence, draft: Draft, num_accepted: int, then: int) -> None:
    """The rest of a round with that outcome, whatever the target thinks."""
    rounds.target.forward([Rows(sequence.cache, [sequence.tokens[-1], *draft.tokens], len(draft) + 1)])
    sequence.cache.commit(1 + num_accepted)
    for token in (*draft.tokens[:num_accepted], then):
        sequence.append(token)
    rounds.drafters[HEAD].observe([Outcome(sequence, draft, num_accepted)])


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("llama", RowHead),
        ("windowed gemma3_text", RowHead),
        ("qwen3_next", RowHead),
        ("deepseek_v3", SequentialHead),
        pytest.param("native llama", FusedHead, marks=needs_native),
        pytest.param("native gemma3_text", NativeRowHead, marks=needs_native),
    ],
)
def test_a_head_runs_in_the_quickest_way_that_gives_what_its_block_gives(kind: str, way: type[RunningHead]) -> None:
    assert type(running_head(random_head(headed_model(kind)))) is way


@KINDS
@pytest.mark.parametrize("part", [None, PART], ids=["all tokens", "some tokens"])
def test_drafts_are_those_of_a_plain_computation(kind: str, part: np.ndarray | None) -> None:
    """Over rounds of which all, some or no tokens are accepted: nothing is left of what was not."""
    rounds, head = rounds_of(kind, part)
    sequence = begin(rounds, request(), prefill_chunk=5)
    for num_accepted in (0, 3, 1, 2, 0, 3):
        [draft] = rounds.draft([sequence])
        assert len(draft) == 3
        states = states_of(rounds.target, sequence.tokens[:-1])
        for position, token in enumerate(draft.tokens):
            logits = plain_logits(head, states, sequence.tokens, draft.tokens[:position])
            assert token == (logits.argmax() if part is None else part[logits.argmax()])
        play(rounds, sequence, draft, num_accepted, then=7 + len(sequence.tokens))


@pytest.mark.parametrize("part", [None, PART], ids=["all tokens", "some tokens"])
def test_a_draft_carries_the_distributions_after_the_requests_own_processors(part: np.ndarray | None) -> None:
    rounds, head = rounds_of("llama", part)
    unseeded = replace(PROCESSED, seed=None)
    sequence = begin(rounds, replace(request(unseeded), acceptance="rejection"))
    [draft] = rounds.draft([sequence])
    states, history = states_of(rounds.target, PROMPT[:-1]), TokenHistory(PROMPT)
    assert draft.distributions is not None
    for position, (token, q) in enumerate(zip(draft.tokens, draft.distributions, strict=True)):
        logits = np.full(VOCAB_SIZE, -np.inf, dtype=np.float32)
        logits[slice(None) if part is None else part] = plain_logits(head, states, PROMPT, draft.tokens[:position])
        np.testing.assert_allclose(q, distribution(adjust(logits, PROCESSED, history), PROCESSED), atol=1e-5)
        assert q[token] > 0.0
        history.push(token)


@KINDS
def test_text_is_that_of_plain_decoding(kind: str) -> None:
    rounds, _ = rounds_of(kind, PART)
    for rule, params in (
        ("rejection", SamplingParams(temperature=0.0, frequency_penalty=0.8, logit_bias=FEW)),
        ("coupled", SamplingParams(temperature=1.5, seed=11, logit_bias=FEW)),
    ):
        plain = Request("test", PROMPT, 12, params, acceptance=rule)
        expected, _ = decode(rounds, plain)
        for depth in (1, 3, 8):
            tokens, sequence = decode(rounds, speculating(plain, HEAD, depth, rule))
            assert tokens == expected, (params, depth)
            assert sequence.speculation.num_drafted > 0
    assert 0 < sequence.speculation.num_accepted < sequence.speculation.num_drafted


@FEW_KINDS
def test_sequences_together_get_the_drafts_that_they_get_alone(kind: str) -> None:
    together, alone = rounds_of(kind)[0], rounds_of(kind)[0]
    prompts = (PROMPT, (5,), (*PROMPT, *PROMPT, 3), PROMPT[:4])
    requests = [request(replace(PROCESSED, seed=seed), prompt) for seed, prompt in enumerate(prompts)]
    ours, theirs = ([begin(rounds, each) for each in requests] for rounds in (together, alone))
    for round_number in range(3):
        drafts = together.draft(ours)
        for index, (draft, one, other) in enumerate(zip(drafts, ours, theirs, strict=True)):
            [expected] = alone.draft([other])
            assert draft.tokens == expected.tokens
            assert len(draft) == (0 if len(one.tokens) == 1 else 3)
            num_accepted = min(len(draft), (index + round_number) % 4)
            for rounds, sequence in ((together, one), (alone, other)):
                play(rounds, sequence, draft, num_accepted, then=9 + index)


def test_a_draft_asked_for_once_more_is_the_same() -> None:
    rounds, _ = rounds_of("llama")
    sequence = begin(rounds, request(PROCESSED))
    for num_accepted in (1, 0, 3):
        [first], [again] = rounds.draft([sequence]), rounds.draft([sequence])
        assert again.tokens == first.tokens
        play(rounds, sequence, first, num_accepted, then=9)


@FEW_KINDS
def test_over_lent_rows_the_head_sees_what_comes_after_them(kind: str) -> None:
    rounds, head = rounds_of(kind)
    lender, borrower = begin(rounds, request()), rounds.begin(request())
    num_lent = lender.cache.num_committed
    state = lender.cache.read_state()
    borrower.cache.restore(num_lent, [lender.cache.read_rows(0, num_lent)], state)
    [draft] = rounds.draft([borrower])
    assert len(draft) == 0  # of no row there is a hidden state
    for num_accepted in (0, 2, 1):
        play(rounds, borrower, draft, num_accepted, then=7 + num_accepted)
        [draft] = rounds.draft([borrower])
        states = states_of(rounds.target, borrower.tokens[:-1])[num_lent:]
        for position, token in enumerate(draft.tokens):
            assert token == plain_logits(head, states, borrower.tokens, draft.tokens[:position]).argmax()
        assert len(draft) == 3


@FEW_KINDS
@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_seed_fixes_the_text_whatever_was_lent(kind: str, rule: Acceptance) -> None:
    """Under these rules the text hangs on what is drafted."""
    rounds, _ = rounds_of(kind)
    asked = replace(request(replace(NO_CUT, logit_bias=FEW)), acceptance=rule)
    cold = begin(rounds, asked)
    warm = rounds.begin(asked)
    num_lent = cold.cache.num_committed
    warm.cache.restore(num_lent, [cold.cache.read_rows(0, num_lent)], cold.cache.read_state())
    for sequence in (cold, warm):
        go_on(rounds, sequence)
    assert warm.tokens == cold.tokens
    assert warm.speculation.num_drafted == cold.speculation.num_drafted > 0


def go_on(rounds: Speculator, sequence: DecodedSequence) -> None:
    """To the end of the text."""
    while sequence.reason is None:
        [draft] = rounds.draft([sequence])
        [verdict] = rounds.verify([sequence], [draft])
        rounds.commit(sequence, draft, verdict)


def test_of_a_long_prompt_it_looks_at_the_last_rows() -> None:
    rounds, head = rounds_of("llama")
    sequence = begin(rounds, request(prompt=[(5 + 37 * place) % 250 for place in range(540)]), prefill_chunk=300)
    [draft] = rounds.draft([sequence])
    states = states_of(rounds.target, sequence.tokens[:-1])[-MOST_HIDDEN_ROWS:]
    assert len(draft) == 3
    for position, token in enumerate(draft.tokens):
        assert token == plain_logits(head, states, sequence.tokens, draft.tokens[:position]).argmax()


def test_a_text_that_starts_over_is_followed_anew() -> None:
    rounds, _ = rounds_of("llama")
    sequence = begin(rounds, request())
    [expected] = rounds.draft([sequence])
    rounds.start_over(sequence)
    rounds.prefill(sequence, sequence.num_to_prefill)
    assert rounds.draft([sequence])[0].tokens == expected.tokens


@pytest.mark.parametrize(("drafter", "depth"), [("none", 3), ("ngram", 3), (HEAD, 0)])
def test_texts_that_the_head_does_not_draft_for_keep_no_hidden_states(drafter: str, depth: int) -> None:
    rounds, _ = rounds_of("llama")
    assert rounds.begin(replace(request(), drafter=drafter, depth=depth)).cache.hidden is None
    assert rounds.begin(request()).cache.hidden is not None
    assert rounds.begin(replace(request(), drafter="auto")).cache.hidden is not None


@pytest.mark.parametrize("params", [GREEDY, NO_CUT], ids=["greedy", "sampled"])
def test_a_draft_ends_where_another_token_is_not_worth_adding(params: SamplingParams) -> None:
    rounds, head = rounds_of("llama")
    drafter, sequence = rounds.drafters[HEAD], begin(rounds, request(params, depth=8))
    [full] = drafter.propose([sequence], [8])
    states = states_of(rounds.target, PROMPT[:-1])
    shares = []
    for position in range(8):
        logits = plain_logits(head, states, PROMPT, full.tokens[:position]).astype(np.float64)
        share = np.exp(logits - logits.max())
        shares.append(full.distributions[position].max() if full.distributions else share.max() / share.sum())
    for length in range(1, 5):
        unknown = Calibration().usual_rate  # of the token that would come
        sequence.worth = Worth(float(np.prod(shares[:length])) * unknown * 1.001, 0.0)
        [draft] = drafter.propose([sequence], [8])
        assert draft.tokens == full.tokens[:length]
        sequence.worth = Worth(sequence.worth.drafting, float(np.prod(shares[:length])) * 1.001)
        [draft] = drafter.propose([sequence], [8])
        assert draft.tokens == full.tokens[: max(1, length - 1)]


@pytest.mark.parametrize("params", [GREEDY, NO_CUT], ids=["greedy", "sampled"])
def test_how_far_it_goes_is_learnt_from_what_survives(params: SamplingParams) -> None:
    rounds, _ = rounds_of("llama")
    drafter, sequence = rounds.drafters[HEAD], begin(rounds, request(params, depth=8))
    sequence.worth = Worth(0.6, 0.0)  # more than it gives its tokens itself

    def length(num_surviving: int, times: int) -> int:
        for _ in range(times):
            [draft] = drafter.propose([sequence], [8])
            drafter.observe([Outcome(sequence, draft, min(num_surviving, len(draft)))])
        return len(draft)

    assert length(num_surviving=0, times=1) == 1
    assert length(num_surviving=8, times=200) > 4
    assert length(num_surviving=0, times=600) == 1


def test_a_draft_that_the_end_of_the_text_cut_off_says_nothing() -> None:
    rounds, _ = rounds_of("llama")
    drafter, sequence = rounds.drafters[HEAD], begin(rounds, request(depth=8))
    sequence.worth, sequence.reason = Worth(1e-3, 0.0), "length"
    [first] = drafter.propose([sequence], [8])
    for _ in range(200):
        [draft] = drafter.propose([sequence], [8])
        drafter.observe([Outcome(sequence, draft, 0)])
    assert len(draft) == len(first) > 1


def test_where_a_grammar_allows_none_of_the_heads_tokens_there_is_no_draft() -> None:
    rounds, _ = rounds_of("llama", np.array([50, 51], dtype=np.int32))
    [draft] = rounds.draft([begin(rounds, replace(request(), grammar=ONLY_40))])
    assert (draft.tokens, draft.failed) == ((), False)


class Broken(RowHead):
    """Gives no numbers for the first of several texts."""

    def forward(self, batch: Sequence[Pairs]) -> Foreseen:
        foreseen = super().forward(batch)
        logits = foreseen.logits.copy()
        logits[0, 0] = np.nan if len(batch) > 1 else logits[0, 0]
        return replace(foreseen, logits=logits)


def test_logits_that_are_no_numbers_cost_the_draft_of_that_text_alone() -> None:
    model = headed_model("llama")
    rounds = Speculator(make_target(model), {HEAD: HeadDrafter(Broken(random_head(model)))}, ByteTokenizer())
    drafts = rounds.draft([begin(rounds, request()), begin(rounds, request())])
    assert [(len(draft), draft.failed) for draft in drafts] == [(0, True), (3, False)]
