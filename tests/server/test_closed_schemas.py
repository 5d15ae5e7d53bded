"""An object that lists its properties has no others, as far as that can be said."""

from typing import Any

import pytest

from mtplx.server.closed_schemas import closed

A = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED_A = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (A, CLOSED_A),
        ({**A, "required": ["a"], "minProperties": 1}, {**CLOSED_A, "required": ["a"], "minProperties": 1}),
        ({"type": "array", "items": A}, {"type": "array", "items": CLOSED_A}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED_A, {"type": "null"}]}),
        (
            {"type": "object", "properties": {"inner": A}},
            {"type": "object", "properties": {"inner": CLOSED_A}, "additionalProperties": False},
        ),
        ({"$defs": {"A": A}, "$ref": "#/$defs/A"}, {"$defs": {"A": CLOSED_A}, "$ref": "#/$defs/A"}),
        (
            {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": A}},
            {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": CLOSED_A}},
        ),
        (
            {"type": "object", "properties": {"properties": A}},
            {"type": "object", "properties": {"properties": CLOSED_A}, "additionalProperties": False},
        ),
    ],
)
def test_objects_are_closed_wherever_they_stand(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    before = repr(schema)
    assert closed(schema) == expected
    assert repr(schema) == before


@pytest.mark.parametrize(
    "schema",
    [
        {**A, "additionalProperties": True},
        {**A, "additionalProperties": {"type": "string"}},
        {"type": "object"},
        {"type": "object", "patternProperties": {"^x": {}}},
        {**A, "required": ["a", "b"]},
        {**A, "minProperties": 2},
        {"type": "string", "enum": ["properties"]},
        {"const": {"properties": {"a": 1}}},
    ],
)
def test_what_says_otherwise_or_lists_none_or_not_all_stays(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, {"properties": {"b": {}}}]},
        {"$defs": {"A": A}, "properties": {"x": {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {}}}]}}},
        {**A, "anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}]},
        {**A, "patternProperties": {"^x": {}}},
        {"oneOf": [A, {"type": "object", "properties": {"b": {}}}]},
    ],
)
def test_objects_that_several_schemas_describe_stay_open(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


def test_of_several_that_a_discriminator_tells_apart_each_is_closed() -> None:
    discriminator = {"propertyName": "a"}
    assert closed({"oneOf": [A], "discriminator": discriminator}) == {
        "oneOf": [CLOSED_A],
        "discriminator": discriminator,
    }
