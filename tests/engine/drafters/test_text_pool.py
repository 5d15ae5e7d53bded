"""A pool holds the latest finished texts, within its budget."""

from mtplx.engine.drafters.text_pool import TextPool
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.text.stream import TextStream
from mtplx.engine.types import Request
from tests.fakes import ByteTokenizer, TabularCache


def text(*tokens: int) -> DecodedSequence:
    return DecodedSequence(Request("test", tokens, 10), TabularCache(), TextStream(ByteTokenizer().decode, (), ()))


def finish(pool: TextPool, *tokens: int) -> None:
    ended = text(*tokens)
    pool.watch(ended)
    ended.reason = "stop"
    pool.learn()


def test_a_text_is_learnt_when_it_has_ended_whole_and_once() -> None:
    pool, growing = TextPool(90), text(1, 2)
    for token in (3, 4):
        pool.watch(growing)
        pool.learn()
        growing.append(token)
        assert pool.num_tokens == 0
    growing.reason = "length"
    for _ in range(2):
        pool.learn()
        assert pool.find([2, 3]).following(5) == (4,)
        assert pool.num_tokens == 5  # with the mark of its end


def test_a_text_that_nobody_holds_has_ended() -> None:
    pool, aborted = TextPool(90), text(1, 2, 3)
    pool.watch(aborted)
    del aborted
    pool.learn()
    assert pool.find([1, 2]).following(5) == (3,)


def test_no_match_and_no_draft_runs_from_one_text_into_the_next() -> None:
    pool = TextPool(90)
    finish(pool, 1, 2, 3)
    finish(pool, 4, 5, 6)
    assert pool.find([3, 4]).length == 1
    assert pool.find([1, 2]).following(5) == (3,)


def test_of_equal_matches_the_newest_text_counts() -> None:
    pool = TextPool(90)
    for value in (3, 4, 5):
        finish(pool, 1, 2, value)
        assert pool.find([1, 2]).following(1) == (value,)
        finish(pool, *range(10, 30))  # so that the texts come to lie in different indices


def test_the_budget_holds_at_all_times_and_the_oldest_texts_go_first() -> None:
    pool = TextPool(90)
    for start in range(0, 1000, 10):
        finish(pool, *range(start, start + 9))
        assert pool.num_tokens <= 90
        latest = [pool.find([begin, begin + 1]).length for begin in range(max(0, start - 30), start + 1, 10)]
        assert latest == [2] * len(latest)
    assert pool.find([0, 1]).length == 0


def test_a_text_longer_than_the_budget_leaves_its_end() -> None:
    pool = TextPool(90)
    finish(pool, *range(5000))
    assert pool.num_tokens <= 90
    assert pool.find([4997, 4998]).following(3) == (4999,)


def test_a_long_text_is_learnt_bit_by_bit() -> None:
    pool = TextPool(9000)
    finish(pool, *range(2000))
    assert pool.find([1000, 1001]).length == 0
    for _ in range(3):
        pool.learn()
    assert pool.find([1998]).following(3) == (1999,)
