"""What a request may come to take is known before it runs."""

import pytest

from mtplx.engine.cache_memory import CacheMemory
from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.types import Request

MEMORY = CacheMemory(max_bytes=3000, row_bytes=10)


def test_a_request_may_fill_all_its_rows_drafts_included_and_buffers_grow_by_half() -> None:
    assert MEMORY.needed_by(Request("a", (1,) * 60, 40)) == 1500
    assert MEMORY.needed_by(Request("a", (1,) * 60, 40, depth=10, drafter="ngram")) == 1650


def test_one_that_could_never_fit_is_told_how_much_would() -> None:
    MEMORY.check(Request("a", (1,) * 150, 50))
    with pytest.raises(InvalidRequestError, match=r"may come to 201 tokens.*it holds 200") as caught:
        MEMORY.check(Request("a", (1,) * 150, 51))
    assert caught.value.field == "max_tokens"
    with pytest.raises(InvalidRequestError, match="it holds 190"):
        MEMORY.check(Request("a", (1,) * 150, 41, depth=10, drafter="ngram"))


def test_states_that_do_not_grow_always_fit() -> None:
    CacheMemory(max_bytes=3000, row_bytes=0).check(Request("a", (1,) * 10**6, 10**6))
