"""From the fields of a body to what its output is to keep to. Knows the fields; compiles nothing."""

import json

from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.server.closed_schemas import closed
from mtplx.server.schemas.formats import FormattedBody, StructuredOutputs

_EMPTY_SCHEMA = "{}"


def grammar_spec(body: FormattedBody) -> GrammarSpec | None:
    """None where any text will do. An empty schema, or none where one belongs, means any JSON object; one that lists
    properties means these."""
    if body.response_format is not None and body.response_format.type != "text":
        schema = body.response_format.json_schema
        return _json(None if schema is None else schema.schema_text, "response_format")
    if body.structured_outputs is not None:
        return _structured(body.structured_outputs)
    if body.guided_json is not None:
        return _json(body.guided_json, "guided_json")
    if body.guided_regex is not None:
        return GrammarSpec("regex", body.guided_regex, "guided_regex")
    if body.guided_choice is not None:
        return GrammarSpec("choice", tuple(body.guided_choice), "guided_choice")
    if body.guided_grammar is not None:
        return GrammarSpec("grammar", body.guided_grammar, "guided_grammar")
    return None


def _structured(outputs: StructuredOutputs) -> GrammarSpec:
    if outputs.regex is not None:
        return GrammarSpec("regex", outputs.regex, "structured_outputs.regex")
    if outputs.choice is not None:
        return GrammarSpec("choice", tuple(outputs.choice), "structured_outputs.choice")
    if outputs.grammar is not None:
        return GrammarSpec("grammar", outputs.grammar, "structured_outputs.grammar")
    return _json(outputs.json_schema, "structured_outputs.json")


def _json(schema: str | None, field: str) -> GrammarSpec:
    if schema is None or schema == _EMPTY_SCHEMA:
        return GrammarSpec("json_object", field=field)
    return GrammarSpec("json_schema", json.dumps(closed(json.loads(schema))), field)
