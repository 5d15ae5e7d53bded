"""From what a request asks its output to keep to, to llguidance's own form. Knows its notations."""

import json
import re

from llguidance import LLMatcher, grammar_from

from mtplx.engine.grammar.spec import JSON_WHITESPACE, GrammarKind

_ASCII = {"d": "[0-9]", "D": "[^0-9]", "w": "[0-9A-Za-z_]", "W": "[^0-9A-Za-z_]"}


def source_of(kind: GrammarKind, value: str | tuple[str, ...]) -> str:
    """The grammar as llguidance reads it. Raises ValueError or RecursionError for one that is wrong.

    Takes forever for some grammars.
    """
    match kind, value:
        case "json_object", _:
            return _json_source('{"type": "object"}')
        case "json_schema", str(schema):
            return _json_source(schema)
        case "regex", str(expression):
            return LLMatcher.grammar_from_regex(_in_ascii(expression))
        case "choice", tuple(choices):
            return LLMatcher.grammar_from_regex("|".join(map(_literal, choices)))
        case _, value:
            return grammar_from("grammar", str(value))


def _json_source(schema: str) -> str:
    fields = json.loads(schema)
    if isinstance(fields, dict) and "x-guidance" in fields:  # llguidance's own options, white space among them
        return LLMatcher.grammar_from_json_schema(schema)
    return LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_pattern": JSON_WHITESPACE})


def _in_ascii(expression: str) -> str:
    """The expression, whose digits and word characters are those of ASCII, as they are in JSON schemas: by Rust's \\d a
    model may write digits of any script."""
    return re.sub(r"\\(.)", lambda found: _ASCII.get(found[1], found[0]), expression, flags=re.DOTALL)


def _literal(text: str) -> str:
    """The expression that only `text` matches."""
    return "".join(each if each.isalnum() or not each.isascii() else f"\\x{ord(each):02x}" for each in text)
