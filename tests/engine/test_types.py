"""What the engine's plain data refuses and counts."""

import math

import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.types import Request, RoundRecord, SamplingParams, SpeculationStats

ENDLESS = 10**5000  # more digits than Python prints


@pytest.mark.parametrize(
    ("field", "lowest", "highest"),
    [
        ("temperature", 0, 2),
        ("top_p", 0, 1),
        ("min_p", 0, 1),
        ("repetition_penalty", 0.1, 10),
        ("presence_penalty", -2, 2),
        ("frequency_penalty", -2, 2),
    ],
)
def test_a_number_is_taken_within_its_range_alone(field: str, lowest: float, highest: float) -> None:
    SamplingParams(**{field: lowest})
    SamplingParams(**{field: highest})
    outside = (math.nextafter(lowest, -99), math.nextafter(highest, 99), math.inf, -math.inf, math.nan, ENDLESS)
    for value in outside:
        with pytest.raises(InvalidRequestError, match=f"^{field} must be") as refusal:
            SamplingParams(**{field: value})
        assert refusal.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_k", -1),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
        pytest.param("seed", ENDLESS, id="endless seed"),
        ("logit_bias", {5: 100.1}),
        ("logit_bias", {5: 1.0, 6: -101.0}),
        ("logit_bias", {5: math.nan}),
        ("logit_bias", {5: math.inf}),
        ("logit_bias", {5: ENDLESS}),
    ],
)
def test_other_values_out_of_range_are_refused_too(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} must ") as refusal:
        SamplingParams(**{field: value})
    assert refusal.value.field == field


def test_the_ends_of_the_ranges_are_taken() -> None:
    SamplingParams(top_k=0, seed=2**63 - 1, logit_bias={5: 100, 6: -100})
    SamplingParams(top_k=10**6, seed=-(2**63))


def test_nothing_is_drafted_without_a_drafter() -> None:
    assert Request("r", (1,), 5, depth=4).draft_depth == 0
    assert Request("r", (1,), 5, depth=4, drafter="ngram").draft_depth == 4


def test_rounds_add_up() -> None:
    stats = SpeculationStats.none(3)
    for num_drafted, num_accepted in ((3, 3), (3, 0), (0, 0), (2, 1), (3, 3)):
        stats = stats.after(RoundRecord("ngram", num_drafted, num_accepted))
    assert stats == SpeculationStats(3, 5, 4, 11, 7, (1, 1, 0, 2))
