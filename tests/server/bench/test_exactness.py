"""Which texts must be plain decoding's, and what is said of one that is not."""

from dataclasses import replace

import pytest

from mtplx.server.bench.exactness import NotExactError, check_exact
from tests.server.bench.runs import GREEDY, drafted, run

WARM = replace(GREEDY, temperature=0.7)
OTHER = {"tokens": (1, 2, 9, 4), "text": "abXd"}


def test_equal_texts_are_counted() -> None:
    assert check_exact([run(drafted()), run(GREEDY), run(drafted(8))], "rejection") == 2


def test_the_first_difference_is_shown() -> None:
    with pytest.raises(NotExactError) as raised:
        check_exact([run(GREEDY), run(drafted()), run(drafted(8), **OTHER)], "rejection")
    message = str(raised.value)
    assert "prompt 1, ngram at depth 8, temperature 0: output token 3 differs" in message
    assert "'abcd'" in message
    assert "'abXd'" in message


def test_a_text_is_compared_with_that_of_the_same_prompt_and_repeat() -> None:
    alike = [run(cell, prompt="2", **OTHER) for cell in (GREEDY, drafted())]
    again = [run(cell, repeat=1, **OTHER) for cell in (GREEDY, drafted())]
    assert check_exact([run(GREEDY), run(drafted()), *alike, *again], "block") == 3


def test_a_text_that_ends_early_differs() -> None:
    with pytest.raises(NotExactError, match="token 3 differs"):
        check_exact([run(GREEDY), run(drafted(), tokens=(1, 2), text="ab")], "rejection")


def test_sampled_texts_must_agree_only_where_noise_is_shared() -> None:
    runs = [run(WARM), run(drafted(temperature=0.7), **OTHER)]
    assert check_exact(runs, "rejection") == 0
    with pytest.raises(NotExactError):
        check_exact(runs, "coupled")
