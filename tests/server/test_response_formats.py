"""What a body says its output is to keep to, in all its spellings, and what is said of those that say it wrongly."""

import json

import pytest

from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.server.errors import ApiError
from mtplx.server.parsing import parse_body
from mtplx.server.response_formats import grammar_spec
from mtplx.server.schemas.formats import FormattedBody

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TEXT = json.dumps(SCHEMA)
CLOSED = json.dumps({**SCHEMA, "additionalProperties": False})  # an object has the properties that are listed


def body(**fields: object) -> FormattedBody:
    return parse_body(json.dumps(fields).encode(), FormattedBody)


def schema_format(**fields: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "an_answer", **fields}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": None, "guided_json": None, "structured_outputs": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, GrammarSpec("json_object", field="response_format")),
        (
            {"response_format": schema_format(schema=SCHEMA, strict=False, description="of all")},
            GrammarSpec("json_schema", CLOSED, "response_format"),
        ),
        ({"response_format": schema_format(strict=True)}, GrammarSpec("json_object", field="response_format")),
        ({"response_format": schema_format(schema={})}, GrammarSpec("json_object", field="response_format")),
        ({"guided_json": SCHEMA}, GrammarSpec("json_schema", CLOSED, "guided_json")),
        ({"guided_json": TEXT}, GrammarSpec("json_schema", CLOSED, "guided_json")),
        ({"guided_json": {}}, GrammarSpec("json_object", field="guided_json")),
        ({"guided_regex": "a+"}, GrammarSpec("regex", "a+", "guided_regex")),
        ({"guided_choice": ["yes", "no"]}, GrammarSpec("choice", ("yes", "no"), "guided_choice")),
        ({"guided_grammar": "start: A"}, GrammarSpec("grammar", "start: A", "guided_grammar")),
        ({"structured_outputs": {"json": SCHEMA}}, GrammarSpec("json_schema", CLOSED, "structured_outputs.json")),
        ({"structured_outputs": {"json_object": True}}, GrammarSpec("json_object", field="structured_outputs.json")),
        ({"structured_outputs": {"regex": "a+"}}, GrammarSpec("regex", "a+", "structured_outputs.regex")),
        ({"structured_outputs": {"choice": ["a"]}}, GrammarSpec("choice", ("a",), "structured_outputs.choice")),
        ({"structured_outputs": {"grammar": "x"}}, GrammarSpec("grammar", "x", "structured_outputs.grammar")),
        ({"response_format": {"type": "text"}, "guided_regex": "a"}, GrammarSpec("regex", "a", "guided_regex")),
    ],
)
def test_what_output_keeps_to(fields: dict[str, object], expected: GrammarSpec | None) -> None:
    assert grammar_spec(body(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "field", "complaint"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is required"),
        ({"response_format": schema_format() | {"type": "text"}}, "response_format.json_schema", "belongs to"),
        ({"response_format": schema_format(schema=[1])}, "response_format.json_schema.schema", "must be a JSON schema"),
        ({"response_format": schema_format(name="a b")}, "response_format.json_schema.name", "pattern"),
        ({"response_format": schema_format(schemas={})}, "response_format.json_schema.schemas", "unknown field"),
        ({"guided_json": "{"}, "guided_json", "not valid JSON"),
        ({"guided_json": "[]"}, "guided_json", "must be a JSON schema"),
        ({"guided_choice": "yes"}, "guided_choice", "list"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "unknown field"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "beside guided_regex"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex", "beside response_format"),
    ],
)
def test_what_is_said_of_a_bad_one(fields: dict[str, object], field: str, complaint: str) -> None:
    with pytest.raises(ApiError) as caught:
        body(**fields)
    assert (caught.value.status, caught.value.param) == (400, field)
    assert complaint in caught.value.message
