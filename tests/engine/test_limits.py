"""What a request may ask for, and how a refusal reads."""

import pytest

from mtplx.engine.errors import ContextLengthError, InvalidRequestError
from mtplx.engine.limits import Limits
from mtplx.engine.types import Request

LIMITS = Limits(context_length=100, max_depth=16, drafters=("ngram", "self"))


def test_a_request_may_fill_the_context_to_the_last_token() -> None:
    LIMITS.check(Request("r", (1,) * 60, max_tokens=40, depth=16, drafter="self"))


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (Request("r", (), 5), "prompt", "empty"),
        (Request("r", (1,), 0), "max_tokens", "at least 1"),
        (Request("r", (1,), 5, depth=17), "speculative_depth", "from 0 to 16, not 17"),
        (Request("r", (1,), 5, depth=-1), "speculative_depth", "from 0 to 16"),
        (Request("r", (1,), 5, drafter="oracle"), "drafter", "ngram, self, none"),
    ],
)
def test_a_refusal_names_the_field_and_the_remedy(request_: Request, field: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as refusal:
        LIMITS.check(request_)
    assert refusal.value.field == field


def test_a_prompt_over_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthError, match=r"maximum context length is 100 tokens, but 101 .*61 .*40"):
        LIMITS.check(Request("r", (1,) * 61, max_tokens=40))
