"""Attention over ragged rows: equal to MLX's, each row on its own, writing in place only what nobody else holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.kernels import attention
from mtplx.kernels.attention import AttentionSegment, ragged_attention, reference_ragged_attention
from tests.kernels.availability import needs_native
from tests.kernels.rows import THREADS, bits, random, threads

TOLERANCE = 5e-6  # outputs are averages of values near 1; sums are taken in another order


@dataclass(frozen=True)
class Heads:
    num: int = 6
    num_kv: int = 2
    size: int = 64
    value_size: int = 64


@dataclass(frozen=True)
class Case:
    """Arguments of ragged_attention, with new keys and values for every row beside them."""

    queries: mx.array
    keys: list[mx.array]
    values: list[mx.array]
    segments: list[AttentionSegment]
    new_keys: mx.array
    new_values: mx.array

    def run(self, function: Callable[..., attention.Attended] = ragged_attention, **options: Any) -> mx.array:
        options = {"scale": 0.125, **options}
        return function(self.queries, self.keys, self.values, self.segments, **options).output

    def append(self, function: Callable[..., attention.Attended] = ragged_attention) -> attention.Attended:
        return function(
            self.queries,
            self.keys,
            self.values,
            self.segments,
            scale=0.125,
            new_keys=self.new_keys,
            new_values=self.new_values,
        )


def make(rows: Sequence[tuple[int, int]], heads: Heads = Heads(), dtype: mx.Dtype = mx.float32) -> Case:
    """Sequences of `rows` (position, number of rows), in buffers with some room to spare."""
    segments, keys, values, start = [], [], [], 0
    for i, (position, count) in enumerate(rows):
        segments.append(AttentionSegment(start, start + count, position))
        capacity = position + count + 7 * i
        keys.append(random(1, heads.num_kv, capacity, heads.size, seed=10 + i).astype(dtype))
        values.append(random(1, heads.num_kv, capacity, heads.value_size, seed=20 + i).astype(dtype))
        start += count
    case = Case(
        random(start, heads.num, heads.size, seed=1, scale=2.0),
        keys,
        values,
        segments,
        random(start, heads.num_kv, heads.size, seed=2),
        random(start, heads.num_kv, heads.value_size, seed=3),
    )
    mx.eval(case.queries, keys, values, case.new_keys, case.new_values)
    return case


def one_row(case: Case, segment: int, row: int) -> Case:
    """Row `row` of a segment and nothing else."""
    whole = case.segments[segment]
    at = whole.start + row
    return replace(
        case,
        queries=case.queries[at : at + 1],
        keys=[case.keys[segment]],
        values=[case.values[segment]],
        segments=[AttentionSegment(0, 1, whole.position + row, whole.first)],
    )


def assert_close(actual: mx.array, expected: mx.array) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=0, atol=TOLERANCE)


def address(array: mx.array) -> int:
    return int(np.asarray(array).__array_interface__["data"][0])


RAGGED = ((300, 1), (0, 70), (129, 8), (127, 2), (0, 1))

HEADS = (
    Heads(),
    Heads(9, 3, 64, 64),
    Heads(4, 4, 80, 80),
    Heads(8, 1, 96, 96),
    Heads(4, 2, 128, 128),
    Heads(2, 1, 256, 256),
    Heads(4, 2, 16, 48),
    Heads(5, 1, 37, 21),
    Heads(2, 2, 3, 1),
    Heads(70, 1, 8, 8),
)

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 20},
    "window of one": {"window": 1},
    "wide window": {"window": 1000},
    "soft-cap": {"softcap": 3.0},
    "sinks": {"sinks": True},
    "all": {"window": 50, "softcap": 3.0, "sinks": True},
}


def with_sinks(options: dict[str, Any], heads: Heads) -> dict[str, Any]:
    return {**options, "sinks": random(heads.num, seed=4, scale=3.0)} if "sinks" in options else options


@needs_native
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_attention_equals_mlx(heads: Heads, dtype: mx.Dtype, options: dict[str, Any]) -> None:
    case, options = make(RAGGED, heads, dtype), with_sinks(options, heads)
    assert_close(case.run(**options), case.run(reference_ragged_attention, **options))


@needs_native
@pytest.mark.parametrize("rows", [((2000, 1),), ((700, 130),), ((0, 300), (500, 3))], ids=str)
def test_attention_equals_mlx_over_many_keys_and_rows(rows: Sequence[tuple[int, int]]) -> None:
    case = make(rows)
    assert_close(case.run(), case.run(reference_ragged_attention))


@needs_native
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
def test_a_row_has_the_same_bits_in_any_number_of_rows(options: dict[str, Any], dtype: mx.Dtype) -> None:
    heads = Heads(6, 2, 16, 16)
    case, options = make([(0, 1024)], heads, dtype), with_sinks(options, heads)
    with threads(1):
        alone = np.concatenate([bits(one_row(case, 0, row).run(**options)) for row in range(1024)])
    for num_threads in THREADS:
        for first, count in ((0, 1024), (0, 1), (3, 2), (120, 17), (250, 64), (5, 255), (1023, 1), (600, 8)):
            some = replace(
                case,
                queries=case.queries[first : first + count],
                segments=[AttentionSegment(0, count, first)],
            )
            with threads(num_threads):
                together = bits(some.run(**options))
            np.testing.assert_array_equal(together, alone[first : first + count], err_msg=f"{first}+{count}")


@needs_native
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_row_has_the_same_bits_beside_any_other_sequences(options: dict[str, Any]) -> None:
    heads = Heads(9, 3, 64, 64)
    case, options = make(RAGGED, heads), with_sinks(options, heads)
    together = bits(case.run(**options))
    for i, segment in enumerate(case.segments):
        for row in (0, segment.stop - segment.start - 1):
            alone = bits(one_row(case, i, row).run(**options))
            np.testing.assert_array_equal(alone[0], together[segment.start + row])


@needs_native
@pytest.mark.parametrize("first", [1, 16, 100, 173])
def test_a_row_has_the_same_bits_wherever_its_buffer_begins(first: int) -> None:
    case = make([(200, 20)])
    later = replace(
        case,
        keys=[case.keys[0][:, :, first:]],
        values=[case.values[0][:, :, first:]],
        segments=[replace(case.segments[0], first=first)],
    )
    np.testing.assert_array_equal(bits(later.run(window=28)), bits(case.run(window=28)))


@needs_native
def test_a_row_notices_nothing_of_what_comes_after_it() -> None:
    case = make([(125, 9)])
    hole = mx.arange(case.keys[0].shape[2])[:, None] >= 130  # rows 5 to 8 of the batch, and what is not yet written
    broken = replace(case, keys=[mx.where(hole, mx.nan, case.keys[0])], values=[mx.where(hole, mx.nan, case.values[0])])
    np.testing.assert_array_equal(bits(broken.run())[:5], bits(case.run())[:5])
    assert bool(mx.isnan(broken.run()[5:]).all())


@needs_native
def test_rows_may_lie_in_memory_in_any_way() -> None:
    case = make(RAGGED)
    expected = bits(case.run())
    mixed = mx.concatenate([case.queries.reshape(82, -1), case.new_keys.reshape(82, -1)], axis=1)
    queries = {
        "part of wider rows": mixed[:, : 6 * 64].reshape(82, 6, 64),
        "heads first": mx.contiguous(case.queries.swapaxes(0, 1)).swapaxes(0, 1),
        "values first": mx.contiguous(case.queries.transpose(2, 1, 0)).transpose(2, 1, 0),
        "backwards": mx.contiguous(case.queries[::-1])[::-1],
    }
    for name, array in queries.items():
        np.testing.assert_array_equal(bits(replace(case, queries=array).run()), expected, err_msg=name)
    with_axis = replace(case, queries=case.queries[:, :, None]).run()
    assert with_axis.shape == (82, 6, 1, 64)
    np.testing.assert_array_equal(bits(with_axis)[:, :, 0], expected)


@needs_native
def test_buffers_may_lie_in_memory_in_any_way() -> None:
    case = make(RAGGED)
    keys = [mx.contiguous(buffer.swapaxes(1, 2)).swapaxes(1, 2) for buffer in case.keys]
    values = [mx.contiguous(buffer.swapaxes(2, 3)).swapaxes(2, 3) for buffer in case.values]
    np.testing.assert_array_equal(bits(replace(case, keys=keys, values=values).run()), bits(case.run()))
    appended = replace(case, keys=keys, values=values).append()
    np.testing.assert_array_equal(bits(appended.output), bits(case.append().output))


@needs_native
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
def test_new_keys_and_values_are_stored_at_their_positions_first(heads: Heads, dtype: mx.Dtype) -> None:
    case = make(RAGGED, heads, dtype)
    actual, expected = case.append(), case.append(reference_ragged_attention)
    assert_close(actual.output, expected.output)
    for a, b in zip(actual.keys + actual.values, expected.keys + expected.values, strict=True):
        assert a.dtype == b.dtype
        assert mx.array_equal(a, b)


@needs_native
def test_buffers_that_nobody_else_holds_are_written_in_place() -> None:
    case = make(RAGGED)
    before = [address(buffer) for buffer in case.keys + case.values]
    given = case.append()
    case.keys.clear()
    case.values.clear()
    mx.eval(given.output, given.keys, given.values)
    assert [address(buffer) for buffer in given.keys + given.values] == before


@needs_native
def test_buffers_that_somebody_holds_are_copied() -> None:
    case = make(RAGGED)
    contents = [np.array(buffer) for buffer in case.keys + case.values]
    given = case.append()
    mx.eval(given.output, given.keys, given.values)
    for buffer, content, new in zip(case.keys + case.values, contents, given.keys + given.values, strict=True):
        np.testing.assert_array_equal(np.array(buffer), content)
        assert not mx.array_equal(new, mx.array(content))


@needs_native
def test_sequences_that_share_a_buffer_do_not_see_what_the_other_appends() -> None:
    case = make([(40, 3), (40, 2)])
    shared = replace(case, keys=[case.keys[0]] * 2, values=[case.values[0]] * 2)
    case.keys.clear()
    case.values.clear()
    actual, expected = shared.append(), shared.append(reference_ragged_attention)
    shared.keys.clear()
    shared.values.clear()
    mx.eval(actual.output, actual.keys)
    assert_close(actual.output, expected.output)
    for a, b in zip(actual.keys, expected.keys, strict=True):
        assert mx.array_equal(a, b)


@needs_native
def test_steps_follow_one_another_without_being_computed() -> None:
    case = make([(40, 1)])
    big = [mx.concatenate([buffer, mx.zeros_like(buffer)], axis=2) for buffer in (case.keys[0], case.values[0])]
    results = []
    for function in (ragged_attention, reference_ragged_attention):
        keys, values = [big[0] + 0], [big[1] + 0]
        outputs = []
        for position in range(40, 48):
            query = case.queries if not outputs else case.queries + outputs[-1]
            given = function(
                query,
                keys,
                values,
                [AttentionSegment(0, 1, position)],
                scale=0.125,
                new_keys=case.new_keys * position / 40,
                new_values=case.new_values + outputs[-1][:, :2] if outputs else case.new_values,
            )
            keys, values = given.keys, given.values
            outputs.append(given.output * 0.5)
        results.append(mx.concatenate(outputs))
    assert_close(*results)


@needs_native
def test_only_a_buffer_may_be_asked_for() -> None:
    actual = make(RAGGED).append().keys[2]
    assert mx.array_equal(actual, make(RAGGED).append(reference_ragged_attention).keys[2])


@needs_native
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda case: {"segments": case.segments[:1]}, "keys and values for each segment"),
        (lambda case: {"segments": [AttentionSegment(0, 2, 300), case.segments[1]]}, "ends before"),
        (lambda case: {"segments": [AttentionSegment(0, 1, 300, first=5), case.segments[1]]}, "begins after"),
        (lambda case: {"segments": [case.segments[0], AttentionSegment(2, 71, 0)]}, "follow one another"),
        (lambda case: {"segments": [case.segments[0], AttentionSegment(1, 60, 0)]}, "each row"),
        (lambda case: {"keys": [case.keys[0], case.values[1].astype(mx.float16)]}, "one type"),
        (lambda case: {"keys": [case.keys[0][0], case.keys[1]]}, "capacity, D"),
        (lambda case: {"queries": case.queries[:, :5]}, "groups"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[Case], dict[str, Any]], message: str) -> None:
    case = make(RAGGED[:2])
    with pytest.raises(ValueError, match=message):
        replace(case, **change(case)).run()


def test_without_native_kernels_the_reference_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "why_unavailable", lambda: "no compiler")
    case = make(RAGGED)
    np.testing.assert_array_equal(bits(case.run()), bits(case.run(reference_ragged_attention)))
