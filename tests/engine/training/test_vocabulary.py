"""The tokens a head may propose are those that are to be foreseen most often."""

import numpy as np

from mtplx.engine.training.texts import Text
from mtplx.engine.training.vocabulary import coverage, frequent_tokens

TEXTS = [Text((9, 9, 9, 9, 4, 4, 4, 2, 2, 7), 4), Text((), 0)]


def test_the_most_frequent_tokens_ascend_and_prompts_do_not_count() -> None:
    assert frequent_tokens(TEXTS, 2, 10).tolist() == [2, 4]  # type: ignore[union-attr]


def test_among_tokens_as_frequent_those_of_lower_ids_come_first() -> None:
    assert frequent_tokens(TEXTS, 5, 10).tolist() == [0, 1, 2, 4, 7]  # type: ignore[union-attr]


def test_a_size_that_leaves_nothing_out_is_no_selection() -> None:
    assert frequent_tokens(TEXTS, 10, 10) is None


def test_coverage_is_the_share_of_tokens_to_foresee() -> None:
    assert coverage(np.array([2, 4], dtype=np.int32), TEXTS, 10) == 5 / 6
    assert coverage(None, TEXTS, 10) == coverage(np.array([2], dtype=np.int32), [], 10) == 1
