"""docs/api.md says of every field that OpenAI has what the server does with it; OpenAI's fields are its package's.

Each is sent with every kind of value that OpenAI's types allow: nothing is ignored, and what is refused is named.
"""

import json
from typing import Any

import pytest

from mtplx.server.errors import ApiError
from mtplx.server.parsing import parse_body
from tests.server import openai_requests
from tests.server.api_table import BODIES, PAGE, filled_in, status
from tests.server.conftest import Client
from tests.server.engines import MODEL

LEAST: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": MODEL, "prompt": "abc", "temperature": 0, "max_tokens": 4},
    "/v1/chat/completions": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "abc"}],
        "temperature": 0,
        "max_tokens": 4,
    },
}
TOOLS = {"tools": [{"type": "function", "function": {"name": "a"}}]}
# What a field makes sense with.
COMPANY: dict[str, dict[str, Any]] = {
    "max_completion_tokens": {"max_tokens": None},
    "parallel_tool_calls": TOOLS,
    "stream_options": {"stream": True},
    "tool_choice": TOOLS,
    "top_logprobs": {"logprobs": True},
}
FIELDS = [(path, field) for path in BODIES for field in openai_requests.fields(path)]


def refusal(path: str, fields: dict[str, Any]) -> ApiError | None:
    """The error that these fields get, if they get one."""
    try:
        parse_body(json.dumps(LEAST[path] | fields).encode(), BODIES[path])
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize("path", BODIES)
def test_every_field_of_openai_has_a_status(path: str) -> None:
    body = BODIES[path]
    known = body.model_fields.keys() | body.UNSUPPORTED.keys()
    assert [field for field in openai_requests.fields(path) if field not in known] == []


@pytest.mark.parametrize(("path", "field"), FIELDS)
def test_a_field_is_taken_or_refused_by_its_name_as_its_status_says(path: str, field: str) -> None:
    values = [value for value in openai_requests.samples(openai_requests.fields(path)[field]) if value is not None]
    errors = [refusal(path, {**COMPANY.get(field, {}), field: value}) for value in values]
    refused = [value for value, error in zip(values, errors, strict=True) if error is not None]
    harmless = BODIES[path].UNSUPPORTED.get(field, ())
    match status(path, field):
        case "supported":
            assert len(refused) < len(values)
        case "accepted":
            assert refused == []
        case "refused":
            assert refused == [value for value in values if value not in harmless]
            assert {error.code for error in errors if error is not None} <= {
                "unsupported_parameter",
                "unsupported_value",
            }
    for error in errors:
        assert error is None or (error.status, (error.param or "").startswith(field)) == (400, True), error.message


@pytest.mark.parametrize("path", BODIES)
def test_accepted_fields_change_nothing(client: Client, path: str) -> None:
    types = openai_requests.fields(path)
    accepted = {field: openai_requests.samples(types[field])[0] for field in types if status(path, field) == "accepted"}
    assert accepted
    plain, with_them = (client.post(path, json=LEAST[path] | fields).json() for fields in ({}, accepted))
    changed = {name for name in plain | with_them if plain.get(name) != with_them.get(name)}
    assert changed <= {"id", "created", "metrics"}


def test_the_page_says_so() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled_in(page), "python -m tests.server.api_table writes the tables anew"
