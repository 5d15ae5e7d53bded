"""JSON schemas as those mean them who write them: an object that lists its properties has these and no others.

By JSON Schema it may have any others too unless "additionalProperties" is false, and a model that is let make up
properties may find no end. Whatever keeps to a closed schema keeps to the one that was given.
"""

from collections.abc import Mapping
from typing import Any

# Where schemas stand within a schema: one, in a list, or by name.
_ONE = ("additionalProperties", "contains", "items")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "properties")

# With one of these an object's properties may be listed elsewhere too.
_COMBINING = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas", "patternProperties", "unevaluatedProperties"}
)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with "additionalProperties": false at each object that lists its properties and names no others.

    Left as it is where several schemas are combined to describe one object, for each alone lists only some properties,
    and where exactly one of several must fit, unless a discriminator says which: closed, fewer would fit.
    """
    return dict(schema) if _combines(schema) else _closed(schema)


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    within = dict(schema)
    for key, value in schema.items():
        if key in _ONE and isinstance(value, Mapping):
            within[key] = _closed(value)
        elif key in _LISTS and isinstance(value, list):
            within[key] = [_closed(each) if isinstance(each, Mapping) else each for each in value]
        elif key in _NAMED and isinstance(value, Mapping):
            within[key] = {name: _closed(each) if isinstance(each, Mapping) else each for name, each in value.items()}
    if "properties" in schema and not (schema.keys() & _COMBINING or _needs_others(schema)):
        within.setdefault("additionalProperties", False)
    return within


def _needs_others(schema: Mapping[str, Any]) -> bool:
    """Whether an object must have properties that are not listed."""
    properties, required, least = (schema.get(key) for key in ("properties", "required", "minProperties"))
    if not isinstance(properties, Mapping):
        return False
    lacks = isinstance(required, list) and any(name not in properties for name in required if isinstance(name, str))
    return lacks or (isinstance(least, int | float) and least > len(properties))


def _combines(value: object) -> bool:
    """Whether some object in it is described by several schemas at once, or by one and not the others."""
    if isinstance(value, list):
        return any(_combines(each) for each in value)
    if not isinstance(value, Mapping):
        return False
    all_of = value.get("allOf")
    is_several = isinstance(all_of, list) and len(all_of) > 1
    is_either = "oneOf" in value and "discriminator" not in value
    is_extended = "properties" in value and bool(value.keys() & _COMBINING)
    return is_several or is_either or is_extended or any(_combines(each) for each in value.values())
