"""What a request may ask for, and how a refusal reads."""

import pytest

from mtplx.engine.errors import ContextLengthError, InvalidRequestError
from mtplx.engine.limits import Limits
from mtplx.engine.types import Request, SamplingParams
from tests.engine.grammars import Automaton

LIMITS = Limits(context_length=100, vocab_size=50, max_depth=16, drafters=("ngram", "self"))


def test_a_request_may_fill_the_context_to_the_last_token() -> None:
    LIMITS.check(Request("r", (1,) * 60, max_tokens=40, depth=16, drafter="self"))


def test_a_prompt_to_be_scored_alone_may_fill_the_context() -> None:
    LIMITS.check(Request("r", (1,) * 100, max_tokens=0, scores_prompt=True))
    with pytest.raises(ContextLengthError, match="is 100 tokens, but the prompt has 101; shorten it") as over:
        LIMITS.check(Request("r", (1,) * 101, max_tokens=0, scores_prompt=True))
    assert over.value.field == "prompt"


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (Request("r", (), 5), "prompt", "empty"),
        (Request("r", (1, 50), 5), "prompt", "no token 50; .* from 0 to 49"),
        (Request("r", (-1,), 5), "prompt", "no token -1"),
        (Request("r", (1,), 5, SamplingParams(logit_bias={50: 1.0})), "logit_bias", "no token 50"),
        (Request("r", (1,), 5, SamplingParams(logit_bias={-1: 1.0})), "logit_bias", "no token -1"),
        (Request("r", (1,), 5, stop=("a", "")), "stop", "empty"),
        (Request("r", (1,), 0), "max_tokens", "at least 1"),
        (Request("r", (1,), -1, scores_prompt=True), "max_tokens", "at least 0"),
        (Request("r", (1,), 5, min_tokens=6), "min_tokens", "from 0 to max_tokens, which is 5, not 6"),
        (Request("r", (1,), 5, min_tokens=-1), "min_tokens", "from 0"),
        (Request("r", (1,), 5, stop_token_ids=(3, 50)), "stop_token_ids", "no token 50"),
        (Request("r", (1,), 5, num_logprobs=-1), "logprobs", "from 0 to 50, not -1"),
        (Request("r", (1,), 5, num_logprobs=51), "logprobs", "from 0 to 50"),
        (Request("r", (1,), 5, ignore_eos=True, grammar=Automaton(50, {0: {}})), "ignore_eos", "grammar"),
        (Request("r", (1,), 5, depth=17), "speculative_depth", "from 0 to 16, not 17"),
        (Request("r", (1,), 5, depth=-1), "speculative_depth", "from 0 to 16"),
        (Request("r", (1,), 5, drafter="oracle"), "drafter", "ngram, self, auto, none"),
    ],
)
def test_a_refusal_names_the_field_and_the_remedy(request_: Request, field: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as refusal:
        LIMITS.check(request_)
    assert refusal.value.field == field


def test_too_much_output_for_the_prompt_is_refused_with_all_numbers() -> None:
    with pytest.raises(
        ContextLengthError, match=r"maximum context length is 100 tokens, but 101 .*61 .*40.* 39"
    ) as over:
        LIMITS.check(Request("r", (1,) * 61, max_tokens=40))
    assert over.value.field == "max_tokens"


@pytest.mark.parametrize("num_prompt", [100, 101, 5000])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers_and_no_word_of_the_output(num_prompt: int) -> None:
    with pytest.raises(ContextLengthError, match=rf"is 100 tokens, .*alone has {num_prompt}; shorten it") as over:
        LIMITS.check(Request("r", (1,) * num_prompt, max_tokens=16))
    assert over.value.field == "prompt"
    assert "16" not in str(over.value)
