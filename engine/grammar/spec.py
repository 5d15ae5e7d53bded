"""What a request may ask its output to keep to, as plain data. Knows no tokens and no library."""

from dataclasses import dataclass
from typing import Literal

# Between JSON's parts, as a regular expression. A model that is fond of it would never come to an end.
JSON_WHITESPACE = r"[ \t\n\r]{1,40}"

GrammarKind = Literal["json_object", "json_schema", "regex", "choice", "grammar", "tool_calls"]


@dataclass(frozen=True)
class GrammarSpec:
    """The whole output is a JSON object, JSON by a schema, a match of a regular expression, one of some texts, a
    sentence of a grammar, or calls of tools.

    `value` is the schema as JSON text, the expression in Rust's syntax, the texts, or the grammar in Lark's or GBNF's
    notation, of calls in Lark's; nothing for a JSON object. `field` names the field of the request that asked for it,
    for errors.
    """

    kind: GrammarKind
    value: str | tuple[str, ...] = ""
    field: str | None = None
