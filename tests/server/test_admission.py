"""What a body becomes for the engine: depth, drafter, rule, prediction, pool, priority, salt and time."""

from typing import Any

import pytest

from mtplx.configs.settings import Settings
from mtplx.engine.types import Request
from mtplx.server.admission import admit
from mtplx.server.bridge import ServedModel
from mtplx.server.schemas.completion import CompletionBody
from tests.server.engines import MODEL, letter_engine


def admitted(settings: dict[str, Any], fields: dict[str, Any], **more: Any) -> Request:
    chosen = Settings(**settings)
    engine = letter_engine()(chosen)
    model = ServedModel(MODEL, 0, "", engine.model, engine.limits, engine.way, engine.kernels)
    body = CompletionBody.model_validate({"model": MODEL, "prompt": "abc", **fields})
    return admit(body, [97], request_id="r", default_max_tokens=5, model=model, settings=chosen, **more)


@pytest.mark.parametrize(
    ("settings", "fields", "depth", "auto_depth", "drafter"),
    [
        ({}, {}, 16, True, "auto"),
        ({"max_speculative_depth": 4}, {}, 4, True, "auto"),
        ({"speculative_depth": 2, "drafter": "ngram"}, {}, 2, False, "ngram"),
        ({"speculative_depth": 2, "drafter": "ngram"}, {"speculative_depth": "auto"}, 16, True, "ngram"),
        ({"speculative_depth": 2, "drafter": "ngram"}, {"drafter": "auto"}, 2, False, "auto"),
        ({}, {"speculative_depth": 3}, 3, False, "auto"),
        ({"speculative_depth": 0}, {"drafter": "ngram"}, 16, True, "ngram"),
        ({"drafter": "none"}, {"speculative_depth": 3}, 3, False, "auto"),
    ],
)
def test_the_request_counts_before_the_server(
    settings: dict[str, Any], fields: dict[str, Any], depth: int, auto_depth: bool, drafter: str
) -> None:
    request = admitted(settings, fields)
    assert (request.depth, request.auto_depth, request.drafter) == (depth, auto_depth, drafter)


FIXED = {"speculative_depth": 3, "drafter": "ngram"}


@pytest.mark.parametrize(
    ("settings", "fields", "rule"),
    [
        ({}, {}, "rejection"),
        ({}, {"seed": 1}, "coupled"),
        ({}, {"seed": 1, "speculative_depth": 3}, "coupled"),
        ({}, {"seed": 1, "drafter": "ngram"}, "coupled"),
        ({}, {"seed": 1, **FIXED}, "rejection"),
        ({}, {"seed": 1, "acceptance": "rejection"}, "rejection"),
        ({"acceptance": "block"}, {"seed": 1}, "block"),
        ({"acceptance": "block"}, {"acceptance": "coupled"}, "coupled"),
    ],
)
def test_the_rule_is_rejection_unless_a_seed_must_fix_what_the_engine_plans(
    settings: dict[str, Any], fields: dict[str, Any], rule: str
) -> None:
    assert admitted(settings, fields).acceptance == rule


def test_prediction_and_pool_are_handed_on() -> None:
    request = admitted({}, {}, prediction=[98, 99], pool="them")
    assert (request.prediction, request.pool) == ((98, 99), "them")


def test_a_request_that_says_nothing_has_no_priority_salt_or_timeout() -> None:
    request = admitted({}, {"priority": None, "cache_salt": None, "timeout_s": None})
    assert (request.priority, request.cache_salt, request.timeout_s) == (0, "", None)


def test_priority_and_salt_are_handed_on() -> None:
    request = admitted({}, {"priority": -3, "cache_salt": "pepper"})
    assert (request.priority, request.cache_salt) == (-3, "pepper")


@pytest.mark.parametrize(
    ("allowed_s", "asked_s", "timeout_s"), [(None, 5, 5), (30, None, 30), (30, 5, 5), (30, 60.5, 30)]
)
def test_a_request_may_take_less_time_than_the_server_allows_but_not_more(
    allowed_s: float | None, asked_s: float | None, timeout_s: float
) -> None:
    assert admitted({"request_timeout_s": allowed_s}, {"timeout_s": asked_s}).timeout_s == timeout_s
