"""Reused rows change no answer: it is the same with the prefix cache cold, warm, full and evicting.

On tiny models with random weights, plain and speculating, alone and beside others, over several turns of chats.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from mtplx.engine.assembly import make_speculator
from mtplx.engine.cache import SequenceCache
from mtplx.engine.prefix.prefix_cache import PrefixCache
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import Draft, Request, SamplingParams
from tests.engine.decoding import MistakenOracle, difference, step, step_together
from tests.engine.kinds import TinyModels
from tests.kernels.availability import needs_native
from tests.tiny_configs import VOCAB_SIZE
from tests.tiny_models import EOS

NATIVE = tuple(pytest.param(f"native {kind}", marks=needs_native) for kind in ("llama", "gemma3_text"))
KINDS = ("llama", "gemma3_text", "gemma3n", "mamba2", "qwen3_next", *NATIVE)
LENDS_ANYWHERE = ("llama", "native llama")
REPLAYS = ("mamba2", "qwen3_next")
ROUNDING = {"mamba2": 1e-3, "qwen3_next": 1e-3}  # of recurrent states, with another chunking of the prompt
PLENTY = 1 << 30
GREEDY = SamplingParams(temperature=0.0, logit_bias={EOS: -100.0})
FIRST_TURNS = (tuple(range(40, 60)), (*range(40, 50), *range(90, 99)))  # which begin alike
FOLLOW_UP = (7, 9, 8)
NUM_OUTPUT = 10


class Oracles:
    """Drafts what the answer to each prompt is, with mistakes."""

    name = "oracle"

    def __init__(self, answers: dict[tuple[int, ...], list[int]]) -> None:
        self._oracles = {prompt: MistakenOracle(answer, 0.3, VOCAB_SIZE) for prompt, answer in answers.items()}

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        pairs = zip(sequences, depths, strict=True)
        return [self._oracles[each.request.prompt].propose([each], [depth])[0] for each, depth in pairs]

    def observe(self, outcomes: object) -> None:
        pass


class Service:
    """Answers requests, several at once, as a scheduler would with a prefix cache."""

    def __init__(self, speculator: Speculator, prefixes: PrefixCache) -> None:
        self.speculator = speculator
        self.prefixes = prefixes

    def begin(self, prompt: Sequence[int], depth: int = 0, salt: str = "") -> DecodedSequence:
        """The prompt, prefilled."""
        sequence = self.speculator.begin(
            Request("test", tuple(prompt), NUM_OUTPUT, GREEDY, depth=depth, drafter="oracle")
        )
        self.prefixes.borrow(sequence.tokens, sequence.cache, salt)
        while sequence.num_to_prefill:
            self.speculator.prefill(sequence, min(sequence.num_to_prefill, 16))
        self.prefixes.bank(sequence.tokens, sequence.cache, salt)
        return sequence

    def answer(self, prompt: Sequence[int], depth: int = 0, salt: str = "") -> tuple[list[int], DecodedSequence]:
        sequence = self.begin(prompt, depth, salt)
        while sequence.reason is None:
            step(self.speculator, sequence)
        self.prefixes.bank(sequence.tokens, sequence.cache, salt)
        return output(sequence), sequence

    def answer_together(self, prompts: Sequence[Sequence[int]], depth: int) -> list[list[int]]:
        sequences = [self.begin(prompt, depth) for prompt in prompts]
        while running := [each for each in sequences if each.reason is None]:
            step_together(self.speculator, running)
            for sequence in running:
                if sequence.reason is not None:
                    self.prefixes.bank(sequence.tokens, sequence.cache)
        return [output(sequence) for sequence in sequences]


def output(sequence: DecodedSequence) -> list[int]:
    return sequence.tokens[len(sequence.request.prompt) :]


@dataclass(frozen=True)
class Chats:
    """What a model says in chats of two turns, asked in this order, plainly and with nothing reused."""

    kind: str
    plain: Speculator
    drafting: Speculator
    answers: dict[tuple[int, ...], list[int]]  # to each prompt
    caches: dict[tuple[int, ...], SequenceCache]  # at their ends

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return list(self.answers)


@pytest.fixture(scope="module", params=KINDS)
def chats(request: pytest.FixtureRequest, models: TinyModels) -> Chats:
    kind: str = request.param
    loaded = models[kind]
    plain = make_speculator(loaded)
    service = Service(plain, PrefixCache(0))
    ends = {prompt: service.answer(prompt)[1] for prompt in FIRST_TURNS}
    ends |= {prompt: service.answer(prompt)[1] for prompt in [(*end.tokens, *FOLLOW_UP) for end in ends.values()]}
    answers = {prompt: output(end) for prompt, end in ends.items()}
    drafting = Speculator(plain.target, {"oracle": Oracles(answers)}, loaded.tokenizer)
    return Chats(kind, plain, drafting, answers, {prompt: end.cache for prompt, end in ends.items()})


@pytest.mark.parametrize("depth", [0, 3])
def test_answers_and_caches_are_the_same_with_the_prefix_cache_cold_and_warm(chats: Chats, depth: int) -> None:
    prefixes = PrefixCache(PLENTY)
    service = Service(chats.drafting, prefixes)
    for _ in range(2):
        num_hits_before = prefixes.num_hit_tokens
        for prompt, expected in chats.answers.items():
            answer, end = service.answer(prompt, depth)
            assert answer == expected
            assert difference(chats.plain.target, end.cache, chats.caches[prompt]) < ROUNDING.get(chats.kind, 1e-9)
    # The second time all is known but the token that is pending.
    assert prefixes.num_hit_tokens - num_hits_before == sum(len(prompt) - 1 for prompt in chats.prompts)


@pytest.mark.parametrize("depth", [0, 3])
def test_answers_are_the_same_with_the_prefix_cache_full_and_evicting(chats: Chats, depth: int) -> None:
    ample = PrefixCache(PLENTY)
    for prompt in chats.prompts:
        Service(chats.plain, ample).answer(prompt)
    scarce = PrefixCache(ample.num_bytes // 2)
    service = Service(chats.drafting, scarce)
    for prompt in (*chats.prompts, *reversed(chats.prompts)):
        assert service.answer(prompt, depth)[0] == chats.answers[prompt]
        assert scarce.num_bytes <= ample.num_bytes // 2
    assert scarce.num_hit_tokens > 0
    assert scarce.num_evicted > 0


def test_answers_are_the_same_when_those_that_share_rows_run_together(chats: Chats) -> None:
    prefixes = PrefixCache(PLENTY)
    service = Service(chats.drafting, prefixes)
    for together in (chats.prompts, [chats.prompts[-1]] * 3):
        assert service.answer_together(together, 3) == [chats.answers[prompt] for prompt in together]
    assert prefixes.num_hit_tokens > 3 * (len(chats.prompts[-1]) - 1)


def test_a_text_can_be_banked_after_any_round(chats: Chats) -> None:
    """Also while rows of a partly accepted draft are still to be run again: these are left out."""
    prompt = FIRST_TURNS[0]
    sequence = Service(chats.drafting, PrefixCache(0)).begin(prompt, depth=3)
    num_left_out = set()
    while sequence.reason is None:
        step(chats.drafting, sequence)
        service = Service(chats.plain, PrefixCache(PLENTY))
        service.prefixes.bank(sequence.tokens, sequence.cache)
        rest, _ = service.answer(sequence.tokens)
        assert chats.answers[prompt][sequence.num_output :] == rest[: NUM_OUTPUT - sequence.num_output]
        num_left_out.add(len(sequence.tokens) - 1 - service.prefixes.num_hit_tokens)
    assert num_left_out == {0} if chats.kind not in REPLAYS else max(num_left_out) > 0


def test_a_chat_goes_on_from_where_its_last_answer_ended(chats: Chats) -> None:
    prefixes = PrefixCache(PLENTY)
    service = Service(chats.plain, prefixes)
    first, _, second, _ = chats.prompts
    service.answer(first)
    service.answer(second)
    assert prefixes.num_hit_tokens == len(first) + NUM_OUTPUT - 1  # the last token of an answer is never forwarded


def test_where_a_layer_does_not_keep_every_row_nothing_is_lent_amid_a_text(chats: Chats) -> None:
    prefixes = PrefixCache(PLENTY)
    for prompt in FIRST_TURNS:
        Service(chats.plain, prefixes).begin(prompt)
    assert prefixes.num_hit_tokens == (10 if chats.kind in LENDS_ANYWHERE else 0)


def test_tenants_get_the_same_answers_and_none_of_each_others_rows(chats: Chats) -> None:
    prefixes = PrefixCache(PLENTY)
    service = Service(chats.plain, prefixes)
    prompt = FIRST_TURNS[0]
    assert service.answer(prompt, salt="one")[0] == chats.answers[prompt]
    num_bytes = prefixes.num_bytes
    assert service.answer(prompt, salt="other")[0] == chats.answers[prompt]
    assert (prefixes.num_hit_tokens, prefixes.num_bytes) == (0, 2 * num_bytes)
    assert service.answer(prompt, salt="one")[0] == chats.answers[prompt]
    assert prefixes.num_hit_tokens == len(prompt) - 1
