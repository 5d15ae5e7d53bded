"""Who drafts and how much, by what a request says and what the server does by default."""

from typing import Any

import pytest

from tests.server.conftest import StartServer

PLAIN = {"drafter": "none", "speculative_depth": 0}
REPETITIVE = {"prompt": "abcabcabcabc", "max_tokens": 60, "temperature": 0}


def told(start_server: StartServer, settings: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """What is told of speculation in the reply to a request with these fields."""
    reply = start_server(**settings).complete(**REPETITIVE, **fields)
    speculation: dict[str, Any] = reply.json()["metrics"]["speculative_decoding"]
    return speculation


@pytest.mark.parametrize(
    ("settings", "fields", "depth"),
    [
        (PLAIN, {"speculative_depth": 5}, 5),
        (PLAIN, {"drafter": "ngram"}, 3),
        (PLAIN, {"drafter": "ngram", "speculative_depth": 2}, 2),
        ({"speculative_depth": 0}, {"speculative_depth": 5}, 5),
        ({"drafter": "none", "speculative_depth": 4}, {"drafter": "ngram"}, 4),
        ({"speculative_depth": 0, "max_speculative_depth": 2}, {"drafter": "ngram"}, 2),
        ({"drafter": "none"}, {"speculative_depth": 5}, 5),
    ],
)
def test_a_request_that_asks_for_drafts_gets_them(
    start_server: StartServer, settings: dict[str, Any], fields: dict[str, Any], depth: int
) -> None:
    speculation = told(start_server, settings, fields)
    assert speculation["num_spec_tokens"] == depth
    assert speculation["num_draft_tokens"] > 0


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (PLAIN, {}),
        ({"drafter": "none"}, {}),
        ({}, {"drafter": "none"}),
        ({}, {"drafter": "none", "speculative_depth": 5}),
        ({}, {"speculative_depth": 0}),
        ({}, {"drafter": "ngram", "speculative_depth": 0}),
        (PLAIN, {"speculative_depth": 0}),
    ],
)
def test_a_request_that_asks_for_none_gets_none(
    start_server: StartServer, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    speculation = told(start_server, settings, fields)
    assert speculation["num_spec_tokens"] == speculation["num_draft_tokens"] == 0
    assert speculation["acceptance_histogram"] == [0]
