"""A layer's attention over the rows of many sequences: in one native call, it gives what it gives one by one."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from mtplx.engine import rows
from mtplx.engine.cache import RowCache
from mtplx.engine.rows import RowBatch, RowMask, row_views
from mtplx.kernels.attention import Attended
from tests.kernels.availability import needs_native

NUM_HEADS, NUM_KV_HEADS = 4, 2
LENGTHS = [(300, 2), (1, 5), (40, 1)]  # of three sequences, in two forwards


@dataclass(frozen=True)
class Form:
    """Of a layer: its cache's window, the window of its mask, head sizes of keys and values, and sinks."""

    window: int | None = None
    mask: RowMask | None = None
    key_size: int = 16
    value_size: int = 16
    has_sinks: bool = False
    dtype: mx.Dtype = mx.float32


FORMS = [
    Form(),
    Form(window=8),
    Form(window=8, mask=RowMask(5)),
    Form(mask=RowMask(7)),
    Form(key_size=24, value_size=8),
    Form(window=12, has_sinks=True),
]


def random(num_rows: int, num_heads: int, size: int, dtype: mx.Dtype) -> mx.array:
    return mx.random.normal((num_rows, num_heads, 1, size)).astype(dtype)


def attend(form: Form, *, native: bool) -> tuple[list[mx.array], list[RowCache]]:
    """The outputs of both forwards, and the caches."""
    mx.random.seed(1)
    caches = [RowCache([form.window]) for _ in LENGTHS]
    sinks = mx.random.normal((NUM_HEADS,)) if form.has_sinks else None
    outputs = []
    for lengths in zip(*LENGTHS, strict=True):
        batch = RowBatch([(cache, [0] * length) for cache, length in zip(caches, lengths, strict=True)])
        [view] = row_views(batch, 1, native=native)
        total = sum(lengths)
        view.update_and_fetch(
            random(total, NUM_KV_HEADS, form.key_size, form.dtype),
            random(total, NUM_KV_HEADS, form.value_size, form.dtype),
        )
        output = view.attend(random(total, NUM_HEADS, form.key_size, form.dtype), form.mask, scale=0.3, sinks=sinks)
        mx.eval(output, [cache.arrays for cache in caches])
        outputs.append(output)
        for cache, length in zip(caches, lengths, strict=True):
            cache.extend(length)
            cache.commit(length)
    return outputs, caches


@needs_native
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_native_attention_gives_what_mlx_gives(form: Form) -> None:
    (native, native_caches), (stock, stock_caches) = attend(form, native=True), attend(form, native=False)
    for given, expected in zip(native, stock, strict=True):
        np.testing.assert_allclose(np.array(given), np.array(expected), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(native_caches, stock_caches, strict=True):
        start = ours.layers[0].first_visible(ours.end)
        for a, b in zip(ours.layers[0].read(start, ours.end), theirs.layers[0].read(start, ours.end), strict=True):
            assert mx.array_equal(a, b)


@needs_native
def test_a_layer_is_one_call_and_writes_its_rows_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: object, **options: object) -> Attended:
        calls.append(options)
        return original(*arguments, **options)  # type: ignore[arg-type]

    original = rows.ragged_attention
    monkeypatch.setattr(rows, "ragged_attention", counted)
    _, caches = attend(Form(), native=True)
    assert len(calls) == 2  # forwards, of three sequences each
    before = [address(array) for cache in caches for array in cache.arrays]
    batch = RowBatch([(cache, [0]) for cache in caches])
    [view] = row_views(batch, 1, native=True)
    view.update_and_fetch(*(random(3, NUM_KV_HEADS, 16, mx.float32) for _ in range(2)))
    mx.eval(view.attend(random(3, NUM_HEADS, 16, mx.float32), None, scale=0.3))
    assert [address(array) for cache in caches for array in cache.arrays] == before


def address(array: mx.array) -> int:
    return int(np.asarray(array).__array_interface__["data"][0])


def test_rows_in_half_precision_go_the_stock_way() -> None:
    form = Form(window=8, dtype=mx.float16)
    for given, expected in zip(attend(form, native=True)[0], attend(form, native=False)[0], strict=True):
        assert given.dtype == mx.float16
        assert mx.array_equal(given, expected)
