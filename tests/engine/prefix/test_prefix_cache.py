"""What a text leaves behind is lent to those that begin like it, as copies, within a budget."""

import gc
import random
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
import pytest

from mtplx.engine.cache import RowCache
from mtplx.engine.errors import CacheStateError
from mtplx.engine.prefix.node import copied
from mtplx.engine.prefix.prefix_cache import PrefixCache
from tests.engine.prefix.rows import FULL, ROW_BYTES, WINDOWED, append, contents, expected, filled

PLENTY = 1 << 30
TOKEN_BYTES = len(FULL) * ROW_BYTES
TEXT = tuple(range(100, 700))


def borrow(
    prefixes: PrefixCache, tokens: Sequence[int], windows: Sequence[int | None] = FULL, salt: str = ""
) -> tuple[int, RowCache]:
    cache = RowCache(windows)
    return prefixes.borrow(tokens, cache, salt), cache


@pytest.fixture
def prefixes() -> PrefixCache:
    return PrefixCache(PLENTY)


def test_an_unknown_text_gets_nothing(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT, filled(TEXT))
    num_rows, cache = borrow(prefixes, (1, 2, 3))
    assert (num_rows, cache.num_committed, cache.arrays) == (0, 0, [])


@pytest.mark.parametrize("num_tokens", [1, 2, 255, 256, 257, 300, 512, 599])
def test_the_longest_known_beginning_is_lent(prefixes: PrefixCache, num_tokens: int) -> None:
    prefixes.bank(TEXT, filled(TEXT))
    num_rows, cache = borrow(prefixes, (*TEXT[:num_tokens], 7, 8))
    assert num_rows == cache.num_committed == num_tokens
    assert contents(cache) == expected(TEXT[:num_tokens])


def test_the_last_token_is_always_left_to_be_forwarded(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT, filled(TEXT))
    assert borrow(prefixes, TEXT)[0] == len(TEXT) - 1
    assert borrow(prefixes, TEXT[:1])[0] == 0


def test_lent_rows_can_be_added_to_beyond_what_the_buffers_first_hold(prefixes: PrefixCache) -> None:
    for num_rows in (255, 256, 257):
        prefixes.bank(TEXT, filled(TEXT[:num_rows]))
        _, cache = borrow(prefixes, (*TEXT[:num_rows], 7))
        append(cache, range(300))
        cache.commit(300)
        assert contents(cache) == expected((*TEXT[:num_rows], *range(300)))


def test_only_committed_rows_are_banked(prefixes: PrefixCache) -> None:
    cache = filled(TEXT[:20])
    append(cache, TEXT[20:30])
    prefixes.bank(TEXT[:30], cache)
    assert borrow(prefixes, TEXT)[0] == 20


def test_a_borrower_writes_nothing_that_the_tree_holds(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT[:256], filled(TEXT[:256]))
    for _ in range(2):
        num_rows, cache = borrow(prefixes, (*TEXT[:256], 7))
        assert contents(cache) == expected(TEXT[:num_rows])
        overwrite_in_place(cache)
        assert contents(cache) != expected(TEXT[:num_rows])


def test_nothing_that_is_written_after_banking_reaches_the_tree(prefixes: PrefixCache) -> None:
    cache = filled(TEXT[:256])
    prefixes.bank(TEXT[:256], cache)
    overwrite_in_place(cache)
    assert contents(borrow(prefixes, (*TEXT[:256], 7))[1]) == expected(TEXT[:256])


def overwrite_in_place(cache: RowCache) -> None:
    """Zero a cache's very memory, whoever shares it."""
    for array in cache.arrays:
        np.asarray(memoryview(array))[...] = 0


@pytest.mark.usefixtures("exact_memory")
def test_of_a_longer_text_only_the_new_rows_are_copied(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT[:100], filled(TEXT[:100]))
    assert prefixes.num_bytes == 100 * TOKEN_BYTES
    longer = filled(TEXT[:130])
    before = num_bytes_in_use()
    prefixes.bank(TEXT[:130], longer)
    assert prefixes.num_bytes == 130 * TOKEN_BYTES
    assert num_bytes_in_use() - before == 30 * TOKEN_BYTES
    assert contents(borrow(prefixes, TEXT)[1]) == expected(TEXT[:130])


def test_texts_that_part_share_the_rows_before_and_keep_their_own_after(prefixes: PrefixCache) -> None:
    other = (*TEXT[:100], *range(1000, 1200))
    third = (*TEXT[:100], *range(2000, 2010))
    for text in (TEXT, other, third):
        prefixes.bank(text, filled(text))
    assert prefixes.num_bytes == (len(TEXT) + 200 + 10) * TOKEN_BYTES
    for text in (TEXT, other, third):
        assert contents(borrow(prefixes, (*text, 7))[1]) == expected(text)


def test_salts_share_nothing(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT, filled(TEXT), "a")
    assert borrow(prefixes, TEXT, salt="b")[0] == borrow(prefixes, TEXT)[0] == 0
    prefixes.bank(TEXT[:50], filled(TEXT[:50]), "b")
    assert prefixes.num_bytes == (len(TEXT) + 50) * TOKEN_BYTES
    assert borrow(prefixes, TEXT, salt="b")[0] == 50
    assert borrow(prefixes, TEXT, salt="a")[0] == len(TEXT) - 1


def test_what_was_used_least_recently_goes_first() -> None:
    prefixes = PrefixCache(300 * TOKEN_BYTES)
    texts = [tuple(range(start, start + 100)) for start in (1000, 2000, 3000, 4000)]
    for text in texts[:3]:
        prefixes.bank(text, filled(text))
    borrow(prefixes, texts[0])
    prefixes.bank(texts[3], filled(texts[3]))
    assert [borrow(prefixes, (*text, 7))[0] for text in texts] == [100, 0, 100, 100]
    assert (prefixes.num_bytes, prefixes.num_entries, prefixes.num_evicted) == (300 * TOKEN_BYTES, 3, 1)


def test_a_beginning_stays_as_long_as_something_follows_it() -> None:
    prefixes = PrefixCache(130 * TOKEN_BYTES)
    for start in range(1000, 2000, 100):
        text = (*TEXT[:100], *range(start, start + 10))
        prefixes.bank(text, filled(text))
        assert borrow(prefixes, (*text, 7))[0] == 110
    assert prefixes.num_bytes == 130 * TOKEN_BYTES
    assert prefixes.num_evicted == 7


def test_of_a_text_larger_than_the_budget_the_beginning_is_kept() -> None:
    prefixes = PrefixCache(300 * TOKEN_BYTES)
    prefixes.bank(TEXT, filled(TEXT))
    num_rows, cache = borrow(prefixes, TEXT)
    assert num_rows == 256
    assert contents(cache) == expected(TEXT[:256])


@pytest.mark.usefixtures("exact_memory")
@pytest.mark.parametrize("windows", [FULL, WINDOWED])
def test_bytes_are_counted_exactly_and_given_back(windows: Sequence[int | None]) -> None:
    """Over many texts that share beginnings: never more than the budget, and all of it memory that is really held."""
    choose = random.Random(5)
    budget = 150 * TOKEN_BYTES
    prefixes = PrefixCache(budget)
    before = num_bytes_in_use()
    for _ in range(150):
        text = tuple(choose.choices((1, 2), k=choose.randrange(1, 60)))
        prefixes.bank(text, filled(text, windows), choose.choice("ab"))
        num_rows, cache = borrow(prefixes, text, windows, choose.choice("ab"))
        assert contents(cache) == expected(text[:num_rows], windows)
        del cache
        assert prefixes.num_bytes <= budget
        assert num_bytes_in_use() - before == prefixes.num_bytes
    assert prefixes.num_evicted > 0


@pytest.mark.usefixtures("exact_memory")
def test_room_is_made_before_it_is_taken() -> None:
    prefixes = PrefixCache(300 * TOKEN_BYTES)
    cache = filled(TEXT)
    before = num_bytes_in_use()
    prefixes.bank(range(250), filled(range(250)))
    assert num_bytes_in_use() - before == 250 * TOKEN_BYTES
    mx.reset_peak_memory()
    prefixes.bank(TEXT, cache)
    assert mx.get_peak_memory() - before == prefixes.num_bytes == 256 * TOKEN_BYTES


@pytest.mark.usefixtures("exact_memory")
def test_a_copy_takes_the_memory_of_its_values_and_no_more() -> None:
    """Though these values lie in one piece, in memory that is hardly larger."""
    whole = mx.zeros((1, 1, 64, 4))
    mx.eval(whole)
    before = num_bytes_in_use()
    part = copied(whole[..., :60, :])
    mx.eval(part)
    del whole
    assert num_bytes_in_use() - before == (60 - 64) * 4 * 4  # rows, floats, bytes


@pytest.fixture
def exact_memory() -> Iterator[None]:
    """Let MLX give each array just the memory it asks for, and not some that was freed and is larger; and let nothing
    be freed meanwhile that an earlier test left."""
    limit = mx.set_cache_limit(0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    mx.set_cache_limit(limit)


def num_bytes_in_use() -> int:
    mx.synchronize()
    return mx.get_active_memory()


def test_with_no_budget_nothing_is_kept_nor_counted() -> None:
    prefixes = PrefixCache(0)
    prefixes.bank(TEXT, filled(TEXT))
    assert borrow(prefixes, TEXT)[0] == 0
    assert (prefixes.num_bytes, prefixes.num_entries, prefixes.num_queried_tokens) == (0, 0, 0)


def test_tokens_asked_for_and_found_are_counted(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT[:50], filled(TEXT[:50]))
    borrow(prefixes, TEXT[:100])
    borrow(prefixes, (1, 2, 3))
    assert (prefixes.num_queried_tokens, prefixes.num_hit_tokens) == (103, 50)


def test_behind_windows_texts_are_lent_where_they_were_banked_alone(prefixes: PrefixCache) -> None:
    for num_rows in (5, 40, 300):
        prefixes.bank(TEXT, filled(TEXT[:num_rows], WINDOWED))
    lent = {num_tokens: borrow(prefixes, TEXT[:num_tokens], WINDOWED) for num_tokens in (5, 6, 40, 41, 250, 300, 301)}
    assert {num_tokens: num_rows for num_tokens, (num_rows, _) in lent.items()} == {
        5: 0,
        6: 5,
        40: 5,
        41: 40,
        250: 40,
        300: 40,
        301: 300,
    }
    for num_rows, cache in lent.values():
        assert contents(cache) == expected(TEXT[:num_rows], WINDOWED)
        append(cache, range(700))
        cache.commit(700)
        assert contents(cache) == expected((*TEXT[:num_rows], *range(700)), WINDOWED)


def test_behind_windows_rows_go_with_the_last_state_that_needs_them() -> None:
    state_bytes = 7 * ROW_BYTES
    prefixes = PrefixCache(60 * ROW_BYTES + 2 * state_bytes)
    prefixes.bank(TEXT[:20], filled(TEXT[:20], WINDOWED))
    prefixes.bank(TEXT[:60], filled(TEXT[:60], WINDOWED))
    assert prefixes.num_bytes == 60 * ROW_BYTES + 2 * state_bytes
    borrow(prefixes, (*TEXT[:20], 7), WINDOWED)
    prefixes.bank((1, 2, 3), filled((1, 2, 3), WINDOWED))
    assert prefixes.num_bytes == 20 * ROW_BYTES + state_bytes + 2 * 3 * ROW_BYTES
    assert borrow(prefixes, TEXT, WINDOWED)[0] == 20


def test_a_text_whose_state_can_never_fit_drives_nothing_out() -> None:
    prefixes = PrefixCache(100 * ROW_BYTES)
    prefixes.bank(TEXT[:50], filled(TEXT[:50], WINDOWED))
    prefixes.bank(TEXT[:100], filled(TEXT[:100], WINDOWED))
    prefixes.bank(range(100), filled(range(100), WINDOWED))
    assert prefixes.num_evicted == 0
    assert borrow(prefixes, TEXT, WINDOWED)[0] == 50


def test_a_cache_with_rows_can_borrow_none(prefixes: PrefixCache) -> None:
    prefixes.bank(TEXT, filled(TEXT))
    with pytest.raises(CacheStateError, match="has 3"):
        prefixes.borrow(TEXT, filled(TEXT[:3]))


def test_a_state_cannot_be_banked_amid_a_round(prefixes: PrefixCache) -> None:
    cache = filled(TEXT[:20], WINDOWED)
    append(cache, TEXT[20:30])
    with pytest.raises(CacheStateError, match="10 rows are uncommitted"):
        prefixes.bank(TEXT[:30], cache)
