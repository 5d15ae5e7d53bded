"""A round: what becomes output, where a text ends, and what the cache keeps of it."""

import logging

import numpy as np
import pytest

from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.errors import NonFiniteLogitsError
from mtplx.engine.models.target import Rows
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Draft, Logits, Request, SamplingParams
from tests.engine.decoding import MistakenOracle, begin, decode, decode_scored, decode_together, step
from tests.fakes import EOS, ByteTokenizer, TabularTarget

GREEDY = SamplingParams(temperature=0.0)


class Scripted(TabularTarget):
    """Says one text, whatever was said before: the token at a position follows from the position alone."""

    def __init__(self, prompt: str, text: str) -> None:
        super().__init__(vocab_size=EOS + 1)
        self._says = [*prompt.encode(), *text.encode(), EOS]

    def logits(self, context: object) -> Logits:
        token = self._says[min(len(context), len(self._says) - 1)]
        return 10.0 * np.eye(self.vocab_size, dtype=np.float32)[token]


def decode_text(
    text: str, *, depth: int, stop: tuple[str, ...] = (), max_tokens: int = 100, chance: float = 0.0, **options: object
) -> tuple[str, DecodedSequence]:
    """What comes out when the model wants to say `text`, and the sequence."""
    oracle = MistakenOracle([*text.encode(), EOS], chance, vocab_size=EOS + 1)
    speculator = Speculator(Scripted("prompt", text), {"oracle": oracle}, ByteTokenizer())
    request = Request("r", tuple(b"prompt"), max_tokens, GREEDY, stop, depth, "oracle", **options)
    sequence = begin(speculator, request)
    pieces = []
    while sequence.reason is None:
        emission = step(speculator, sequence)
        pieces.append(emission.text)
        assert len(emission.pieces) == len(emission.tokens)
        assert sequence.cache.num_committed == len(sequence.tokens) - 1  # all rows but the pending token's
        assert sequence.cache.num_uncommitted == 0
    return "".join(pieces), sequence


DEPTHS = pytest.mark.parametrize("depth", [0, 1, 3, 8])


@DEPTHS
def test_an_end_token_inside_the_accepted_run_ends_the_text_and_the_cache_there(depth: int) -> None:
    text, sequence = decode_text("hello", depth=depth)
    assert (text, sequence.reason) == ("hello", "stop")
    assert sequence.num_output == 6  # the end token counts, and shows nothing


@DEPTHS
def test_a_stop_string_across_tokens_ends_the_text_before_it(depth: int) -> None:
    text, sequence = decode_text("one two three", depth=depth, stop=("o t", "zzz"))
    assert (text, sequence.reason) == ("one tw", "stop")
    assert sequence.num_output == len("one two t")


@DEPTHS
def test_a_stop_token_ends_the_text_and_shows_nothing(depth: int) -> None:
    text, sequence = decode_text("one two", depth=depth, stop_token_ids=(ord("w"), ord("z")))
    assert (text, sequence.reason, sequence.num_output) == ("one t", "stop", len("one tw"))


@DEPTHS
@pytest.mark.parametrize(
    ("options", "stop_reason"),
    [
        ({}, None),
        ({"max_tokens": 2}, None),
        ({"stop": ("zz", "tw")}, "tw"),
        ({"stop_token_ids": (ord("w"),)}, ord("w")),
        ({"stop_token_ids": (ord("w"),), "stop": ("e t",)}, "e t"),
    ],
)
def test_it_is_told_what_ended_the_text(options: dict[str, object], stop_reason: object, depth: int) -> None:
    assert decode_text("one two", depth=depth, **options)[1].stop_reason == stop_reason


@DEPTHS
def test_an_end_token_that_is_to_be_ignored_is_a_token_like_others(depth: int) -> None:
    text, sequence = decode_text("hello", depth=depth, max_tokens=9, ignore_eos=True, min_tokens=9)
    assert (text, sequence.reason, sequence.num_output) == ("hello", "length", 9)
    assert sequence.tokens[-4:] == [EOS] * 4


@DEPTHS
def test_an_end_token_waits_for_as_many_tokens_as_are_wanted_at_least(depth: int) -> None:
    """The likeliest token but the end is the first of those that are equal, 0."""
    text, sequence = decode_text("hello", depth=depth, min_tokens=8)
    assert (text, sequence.reason, sequence.num_output) == ("hello\0\0\0", "stop", 9)


@DEPTHS
def test_a_stop_string_counts_once_there_are_as_many_tokens_as_are_wanted_at_least(depth: int) -> None:
    text, sequence = decode_text("one two one two", depth=depth, stop=("two",), min_tokens=7)
    assert (text, sequence.stop_reason) == ("one two one ", "two")
    text, sequence = decode_text("one two one two", depth=depth, stop=("two",), min_tokens=6)
    assert (text, sequence.stop_reason) == ("one ", "two")


@DEPTHS
def test_scores_are_cut_where_the_text_ends(depth: int) -> None:
    oracle = MistakenOracle([*b"hello", EOS, EOS, EOS, EOS], 0.0, vocab_size=EOS + 1)
    speculator = Speculator(Scripted("prompt", "hello"), {"oracle": oracle}, ByteTokenizer())
    request = Request("r", tuple(b"prompt"), 100, GREEDY, (), depth, "oracle", num_logprobs=0)
    _, scores = decode_scored(speculator, request)
    assert [score.token for score in scores] == [*b"hello", EOS]


@DEPTHS
def test_the_beginning_of_a_stop_string_is_shown_when_it_comes_to_nothing(depth: int) -> None:
    assert decode_text("ab abc ab", depth=depth, stop=("abx",))[0] == "ab abc ab"


@DEPTHS
def test_the_token_limit_cuts_the_accepted_run(depth: int) -> None:
    text, sequence = decode_text("hello world", depth=depth, max_tokens=4)
    assert (text, sequence.reason, sequence.num_output) == ("hell", "length", 4)


@pytest.mark.parametrize(
    ("stop", "max_tokens", "draft", "num_output"),
    [((), 100, [*b"one two", EOS, EOS, EOS], 8), (("e t",), 100, [*b"one two", EOS], 5), ((), 3, [*b"one two"], 3)],
    ids=["end token", "stop string", "token limit"],
)
def test_accepted_tokens_past_the_end_of_the_text_count_for_nothing(
    stop: tuple[str, ...], max_tokens: int, draft: list[int], num_output: int
) -> None:
    oracle = MistakenOracle([], 0.0, vocab_size=EOS + 1)
    speculator = Speculator(Scripted("prompt", "one two"), {"oracle": oracle}, ByteTokenizer())
    sequence = begin(speculator, Request("r", tuple(b"prompt"), max_tokens, GREEDY, stop, len(draft), "oracle"))
    overlong = Draft(tuple(draft), drafter="oracle")
    [verdict] = speculator.verify([sequence], [overlong])
    assert verdict.num_accepted == len(draft) > num_output
    emission = speculator.commit(sequence, overlong, verdict)
    assert emission.tokens == tuple(draft[:num_output])
    assert emission.record.num_accepted == sequence.speculation.num_accepted == num_output
    assert [outcome.num_accepted for outcome in oracle.outcomes] == [num_output]
    assert sequence.cache.num_committed == len(sequence.tokens) - 1


@DEPTHS
@pytest.mark.parametrize("text", ["héllo wörld", "日本語のテキスト", "👩‍👩‍👧 family 🎉", "a\u0301 combining"])
def test_characters_of_several_tokens_come_out_whole(text: str, depth: int) -> None:
    assert decode_text(text, depth=depth, chance=0.3)[0] == text


def test_a_character_that_the_limit_cuts_shows_as_a_replacement_character() -> None:
    assert decode_text("é", depth=0, max_tokens=1)[0] == "\ufffd"


@DEPTHS
def test_the_tally_adds_up(depth: int) -> None:
    text = "the quick brown fox jumps over the lazy dog"
    _, sequence = decode_text(text, depth=depth, chance=0.3)
    stats = sequence.speculation
    oracle_outcomes = stats.accepted_histogram
    assert sum(oracle_outcomes) == stats.num_drafts
    assert sum(n * times for n, times in enumerate(oracle_outcomes)) == stats.num_accepted
    assert stats.accepted_per_position == tuple(sum(oracle_outcomes[i + 1 :]) for i in range(depth))
    # Each round emits what it accepted and one more, save a last one that ended on a draft token.
    assert sequence.num_output - stats.num_accepted - stats.num_rounds in (0, -1)


def test_no_draft_is_longer_than_what_may_still_be_said() -> None:
    lengths = []

    class Watching(MistakenOracle):
        def propose(self, sequences: object, depths: list[int]) -> list[Draft]:
            lengths.extend(depths)
            return super().propose(sequences, depths)

    speculator = Speculator(Scripted("p", "abcdefgh"), {"oracle": Watching(b"abcdefgh", 0.0, 257)}, ByteTokenizer())
    decode(speculator, Request("r", tuple(b"p"), 6, GREEDY, depth=3, drafter="oracle"))
    assert lengths == [3, 1]


def test_sequences_that_share_a_forward_say_what_they_say_alone() -> None:
    target = TabularTarget(seed=4)
    drafters = {"small": ModelDrafter("small", TabularTarget(seed=9)), "ngram": NgramDrafter()}
    speculator = Speculator(target, drafters, ByteTokenizer())
    requests = [
        Request("plain", (1, 2), 12, SamplingParams(seed=1)),
        Request("greedy", (3, 1, 2), 15, GREEDY, depth=8, drafter="small"),
        Request("sampled", (3, 1, 2), 9, SamplingParams(seed=2), depth=3, drafter="small"),
        Request("penalties", (5, 6) * 4, 14, SamplingParams(seed=3, presence_penalty=1.0), depth=5, drafter="ngram"),
    ]
    alone = [decode(speculator, request)[0] for request in requests]
    target.num_forwards = 0
    assert decode_together(speculator, requests) == alone
    assert target.num_forwards < 15 + 4  # one a round, besides the prompts


class Failing:
    name = "failing"

    def confidence(self, sequence: object) -> int:
        return 0

    def propose(self, sequences: object, depths: object) -> list[Draft]:
        raise RuntimeError("no ideas today")

    def observe(self, outcomes: object) -> None:
        raise AssertionError("there is no outcome of a draft that never was")


def test_a_failing_drafter_costs_no_output_and_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    target = TabularTarget(seed=4)
    request = Request("r", (1, 2), 10, SamplingParams(seed=8), depth=3, drafter="failing")
    plain, _ = decode(Speculator(target, {}, ByteTokenizer()), request)
    speculator = Speculator(target, {"failing": Failing()}, ByteTokenizer())
    with caplog.at_level(logging.ERROR):
        tokens, sequence = decode(speculator, request)
    assert tokens == plain
    assert sequence.speculation.num_drafts == 0
    assert len([record for record in caplog.records if "no ideas today" in (record.exc_text or "")]) == 1
    [draft] = speculator.draft([begin(speculator, request)])
    assert draft.failed
    assert len(draft) == 0


class Deaf(MistakenOracle):
    """Fails on every outcome."""

    def observe(self, outcomes: object) -> None:
        raise RuntimeError("not listening")


def test_a_drafter_that_fails_on_outcomes_costs_no_output_and_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    speculator = Speculator(Scripted("p", "hello"), {"oracle": Deaf(b"hello", 0.0, EOS + 1)}, ByteTokenizer())
    sequence = begin(speculator, Request("r", tuple(b"p"), 100, GREEDY, depth=1, drafter="oracle"))
    records = []
    with caplog.at_level(logging.ERROR):
        while sequence.reason is None:
            records.append(step(speculator, sequence).record)
    assert sequence.tokens == [*b"phello", EOS]
    assert [(record.num_accepted, record.draft_failed) for record in records] == [(1, True)] * 3
    assert len([record for record in caplog.records if "not listening" in (record.exc_text or "")]) == 1


class Broken(TabularTarget):
    def forward(self, batch: list[Rows]) -> list[Logits]:
        logits = super().forward(batch)
        logits[0][-1:, 3] = np.nan
        return logits


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=1)], ids=["greedy", "sampled"])
def test_logits_that_are_not_finite_are_an_error_never_a_token(params: SamplingParams) -> None:
    speculator = Speculator(Broken(), {}, ByteTokenizer())
    with pytest.raises(NonFiniteLogitsError, match="not finite after 0 tokens"):
        decode(speculator, Request("r", (1, 2), 5, params))
