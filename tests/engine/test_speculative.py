"""A round: what becomes output, where a text ends, and what the cache keeps of it."""

import logging

import numpy as np
import pytest

from mtplx.engine.errors import NonFiniteLogitsError
from mtplx.engine.models.target import Rows
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Draft, Logits, Request, SamplingParams
from tests.engine.decoding import MistakenOracle, begin, decode
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
    text: str, *, depth: int, stop: tuple[str, ...] = (), max_tokens: int = 100, chance: float = 0.0
) -> tuple[str, object]:
    """What comes out when the model wants to say `text`, and the sequence."""
    oracle = MistakenOracle([*text.encode(), EOS], chance, vocab_size=EOS + 1)
    speculator = Speculator(Scripted("prompt", text), {"oracle": oracle}, ByteTokenizer())
    request = Request("r", tuple(b"prompt"), max_tokens, GREEDY, stop, depth, "oracle")
    sequence = begin(speculator, request)
    pieces = []
    while sequence.reason is None:
        draft = speculator.draft(sequence)
        [verdict] = speculator.verify([sequence], [draft])
        emission = speculator.commit(sequence, draft, verdict)
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
def test_the_beginning_of_a_stop_string_is_shown_when_it_comes_to_nothing(depth: int) -> None:
    assert decode_text("ab abc ab", depth=depth, stop=("abx",))[0] == "ab abc ab"


@DEPTHS
def test_the_token_limit_cuts_the_accepted_run(depth: int) -> None:
    text, sequence = decode_text("hello world", depth=depth, max_tokens=4)
    assert (text, sequence.reason, sequence.num_output) == ("hell", "length", 4)


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


class Failing:
    name = "failing"

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
    draft = speculator.draft(begin(speculator, request))
    assert draft.failed
    assert len(draft) == 0


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
