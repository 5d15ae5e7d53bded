"""Sampling without sorting: the distribution that sorting defines, and acceptance on what is left of it."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from mtplx.engine import acceptance, sampling
from mtplx.kernels import sampling as kernel
from mtplx.kernels.sampling import SparseDistribution, accept_or_replace, cut_distribution, greedy, one_hot
from tests.kernels.availability import needs_native

Row = npt.NDArray[np.float32]

# Native functions and the references that they must equal; the latter are tested where nothing is native, too.
both = pytest.mark.parametrize("prefix", [pytest.param("", marks=needs_native), "reference_"])

LEAST = 1e-290  # probabilities below may be 0
TEMPERATURES = (0.05, 0.7, 1.0, 2.0)
CUTS = [
    {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    for top_k, top_p, min_p in itertools.product((0, 1, 40, 3000), (1.0, 0.9, 0.01, 0.0), (0.0, 0.02, 1.0))
]


def normal(size: int, seed: int = 0, scale: float = 3.0) -> Row:
    return np.random.default_rng(seed).normal(scale=scale, size=size).astype(np.float32)


ROWS = {
    "one token": np.array([1.5], dtype=np.float32),
    "three tokens": np.array([1.0, 3.0, 2.0], dtype=np.float32),
    "peaked": normal(5000, scale=8.0),
    "usual": normal(5003, seed=1),
    "flat": normal(4096, seed=2, scale=0.05),
    "all equal": np.full(1000, 0.25, dtype=np.float32),
    "many equals": np.round(normal(5000, seed=3)),
    "a peak far above": np.concatenate([normal(3000, seed=4), [60]]).astype(np.float32),
    "forbidden tokens": np.where(np.arange(5000) % 7 == 0, -np.inf, normal(5000, seed=5)).astype(np.float32),
}
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def cut(prefix: str, row: Row, **arguments: float) -> SparseDistribution:
    result: SparseDistribution = getattr(kernel, f"{prefix}cut_distribution")(row, **arguments)
    return result


def defined_by_sorting(row: Row, temperature: float, top_k: int, top_p: float, min_p: float) -> npt.NDArray[np.float64]:
    """The definition, the whole vocabulary at a time: each cut leaves weights or makes them 0."""
    weights = np.exp((row.astype(np.float64) - row.max()) / temperature)
    weights[weights < min_p] = 0.0
    rank = np.argsort(np.argsort(-weights, kind="stable"))
    if top_k:
        weights[rank >= top_k] = 0.0
    if top_p < 1.0:
        before = np.cumsum(np.sort(weights)[::-1])[rank] - weights  # the weight of the likelier ones
        weights[before >= top_p * weights.sum()] = 0.0
        weights[rank == 0] = 1.0
    return weights / weights.sum()


def dense(p: SparseDistribution, size: int) -> npt.NDArray[np.float64]:
    probabilities = np.zeros(size)
    probabilities[p.tokens] = p.probabilities
    return probabilities


@both
@every_row
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_cuts_leave_what_their_definition_leaves(prefix: str, row: Row, temperature: float) -> None:
    for cuts in CUTS:
        expected = defined_by_sorting(row, temperature, **cuts)
        actual = cut(prefix, row, temperature=temperature, **cuts)
        matters = actual.probabilities > LEAST
        np.testing.assert_array_equal(actual.tokens[matters], np.flatnonzero(expected > LEAST), err_msg=str(cuts))
        np.testing.assert_allclose(actual.probabilities, expected[actual.tokens], rtol=1e-12, atol=LEAST)


@both
def test_what_is_left_is_typed_and_in_order(prefix: str) -> None:
    p = cut(prefix, ROWS["usual"], temperature=0.7, top_p=0.9)
    assert (p.tokens.dtype, p.probabilities.dtype) == (np.int32, np.float64)
    assert (np.diff(p.tokens) > 0).all()
    assert p.probabilities.sum() == pytest.approx(1.0, abs=1e-12)


@both
def test_among_equals_lower_tokens_stay(prefix: str) -> None:
    row = np.array([0, 1, 0, 1, 0, 1], dtype=np.float32)
    assert cut(prefix, row, temperature=1.0, top_k=2).tokens.tolist() == [1, 3]
    assert cut(prefix, row, temperature=1.0, top_k=4).tokens.tolist() == [0, 1, 3, 5]
    assert cut(prefix, np.zeros(10, dtype=np.float32), temperature=1.0, top_p=0.5).tokens.tolist() == [0, 1, 2, 3, 4]


@both
@every_row
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_without_cuts_every_token_has_its_probability(prefix: str, row: Row, temperature: float) -> None:
    given = getattr(kernel, f"{prefix}whole_distribution")(row, temperature)
    weights = np.exp((row.astype(np.float64) - row.max()) / temperature)
    np.testing.assert_allclose(given, weights / weights.sum(), rtol=1e-12, atol=LEAST)


@both
@pytest.mark.parametrize("size", [1, 7, 16, 63, 64, 65, 130, 1000])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_without_a_finite_maximum_are_refused(prefix: str, size: int, bad: float) -> None:
    for place in {0, size // 2, size - 1}:
        row = normal(size)
        row[place] = bad
        refuses(prefix, row)
    refuses(prefix, np.full(size, -np.inf, dtype=np.float32))


def refuses(prefix: str, row: Row) -> None:
    with pytest.raises(ValueError, match="finite"):
        cut(prefix, row, temperature=1.0)
    with pytest.raises(ValueError, match="finite"):
        getattr(kernel, f"{prefix}whole_distribution")(row, 1.0)


@both
@every_row
def test_greedy_takes_the_lowest_of_the_most_likely(prefix: str, row: Row) -> None:
    expected = int(np.argmax(row)), bool(np.isfinite(row).all())
    assert getattr(kernel, f"{prefix}greedy")(row) == expected


@both
@pytest.mark.parametrize("size", [1, 7, 16, 63, 64, 65, 130, 1000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_greedy_tells_of_logits_that_are_not_finite(prefix: str, size: int, bad: float) -> None:
    for place in {0, size // 2, size - 1}:
        row = normal(size)
        assert getattr(kernel, f"{prefix}greedy")(row)[1]
        row[place] = bad
        assert not getattr(kernel, f"{prefix}greedy")(row)[1]


@needs_native
def test_rows_of_other_types_and_strides_will_do() -> None:
    rows = np.stack([normal(200, seed=1), normal(200, seed=2)], axis=1)
    for row in (rows[:, 1], rows[:, 1].astype(np.float64)):
        assert greedy(row)[0] == int(np.argmax(rows[:, 1]))
        assert len(cut_distribution(row, temperature=1.0, top_k=3).tokens) == 3


@both
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_draws_are_the_engines(prefix: str, top_p: float) -> None:
    p = cut(prefix, ROWS["usual"], temperature=0.7, top_p=top_p)
    probabilities = dense(p, len(ROWS["usual"]))
    for uniform in (0.0, 1e-9, *np.random.default_rng(0).random(200), np.nextafter(1.0, 0.0)):
        assert getattr(kernel, f"{prefix}draw")(p, uniform) == sampling.draw(probabilities, uniform)


@both
def test_probabilities_are_found_by_token(prefix: str) -> None:
    p = cut(prefix, ROWS["usual"], temperature=0.7, top_k=20)
    probabilities = dense(p, len(ROWS["usual"]))
    for token in (0, 5002, *p.tokens.tolist(), *(p.tokens + 1).tolist()):
        assert getattr(kernel, f"{prefix}probability_of")(p, token) == probabilities[token]


@both
@pytest.mark.parametrize("seed", range(20))
def test_residuals_are_the_engines(prefix: str, seed: int) -> None:
    p = cut(prefix, normal(300, seed), temperature=1.0, top_p=0.9)
    q = cut(prefix, normal(300, seed) + normal(300, seed + 100, scale=0.5), temperature=1.0, top_k=30)
    token = int(p.tokens[0])
    for drawn_from, dense_q in ((q, dense(q, 300)), (one_hot(token), None)):
        expected = acceptance.residual(dense(p, 300), dense_q, token)
        actual = getattr(kernel, f"{prefix}residual")(p, drawn_from)
        np.testing.assert_allclose(dense(actual, 300), expected, rtol=1e-12)


@both
def test_the_residual_of_equals_is_the_target(prefix: str) -> None:
    p = cut(prefix, normal(300), temperature=1.0, top_k=30)
    rest = getattr(kernel, f"{prefix}residual")(p, p)
    np.testing.assert_array_equal(rest.tokens, p.tokens)
    np.testing.assert_allclose(rest.probabilities, p.probabilities, rtol=1e-15)


def test_acceptance_is_the_engines() -> None:
    p = cut_distribution(normal(50), temperature=1.0, top_k=20)
    q = cut_distribution(normal(50, seed=1), temperature=1.0, top_k=20)
    for token in range(50):
        expected = acceptance.acceptance_probability(dense(p, 50), dense(q, 50), token)
        assert kernel.acceptance_probability(p, q, token) == pytest.approx(expected, rel=1e-12)


def test_what_is_emitted_has_the_law_of_the_target() -> None:
    """The integral over both uniforms, piece by piece: the theorem, computed on the sparse distributions."""
    p = cut_distribution(normal(8), temperature=2.0, top_k=6)
    q = cut_distribution(normal(8, seed=1), temperature=2.0, top_p=0.8)
    num_pieces = 2000
    law = np.zeros(8)
    for token, drawn in zip(q.tokens.tolist(), q.probabilities, strict=True):
        accepted = kernel.acceptance_probability(p, q, token)
        if accepted > 0.0:
            assert accept_or_replace(p, q, token, accepted * 0.999, 0.5) == (True, token)
            law[token] += drawn * accepted
        if accepted < 1.0:
            for i in range(num_pieces):
                stays, replacement = accept_or_replace(p, q, token, accepted, (i + 0.5) / num_pieces)
                assert not stays
                law[replacement] += drawn * (1.0 - accepted) / num_pieces
    np.testing.assert_allclose(law, dense(p, 8), atol=8 / num_pieces)
