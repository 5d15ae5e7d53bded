"""The fields by which a request says what its output is to keep to, in OpenAI's words and in vLLM's.

Knows which fields there are and that they exclude each other. Whether a schema, an expression or a grammar is any good,
the engine's compiler knows.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import from_json

from mtplx.server.schemas.fields import Body, invalid


def _read_schema(value: object) -> object:
    """A schema as JSON text, from an object or from its JSON text."""
    if isinstance(value, str):
        try:
            value = from_json(value, allow_inf_nan=False)
        except ValueError as error:
            raise invalid(f"is not valid JSON: {error}") from None
    if not isinstance(value, Mapping | None):
        raise invalid("must be a JSON schema: an object, or one as JSON text", "invalid_type")
    return None if value is None else json.dumps(value)


SchemaText: TypeAlias = Annotated[
    str | None, BeforeValidator(_read_schema, json_schema_input_type=dict[str, Any] | str | None)
]


class JsonSchema(Body):
    """A schema under a name. Output keeps to it whether `strict` or not."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")] = Field(
        description="What the schema is called."
    )
    description: str | None = Field(None, description="What it is for; the model is not told.")
    schema_text: Annotated[
        str | None, BeforeValidator(_read_schema, json_schema_input_type=dict[str, Any] | None), Field(alias="schema")
    ] = Field(None, description="The JSON schema; any JSON object will do if not given.")
    strict: bool | None = Field(None, description="Output keeps to the schema either way.")


class ResponseFormat(Body):
    """What the whole output is: any text, a JSON object, or JSON by a schema."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="Which of these it is.")
    json_schema: JsonSchema | None = Field(None, description="The schema, for that type.")

    @model_validator(mode="after")
    def _has_a_schema_if_it_says_so(self) -> Self:
        if self.json_schema is None and self.type == "json_schema":
            raise invalid('is required with the type "json_schema"', "missing_required_parameter", at=".json_schema")
        if self.json_schema is not None and self.type != "json_schema":
            raise invalid('belongs to the type "json_schema" and to no other', at=".json_schema")
        return self


class StructuredOutputs(Body):
    """One of these, as vLLM has them."""

    json_schema: SchemaText = Field(None, alias="json", description="A JSON schema, or its text.")
    json_object: bool | None = Field(None, description="Whether it is a JSON object.")
    regex: str | None = Field(None, description="A regular expression in Rust's syntax, \\d and \\w of ASCII.")
    choice: list[str] | None = Field(None, description="The texts to choose from.")
    grammar: str | None = Field(None, description="A grammar in Lark's or GBNF's notation.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [value for _, value in self if value not in (None, False)]
        if len(given) != 1:
            raise invalid("must have exactly one of json, json_object, regex, choice and grammar")
        return self


class FormattedBody(Body):
    """The fields of a body that say what output is to keep to."""

    response_format: ResponseFormat | None = Field(
        None,
        description="What the output is: text, a JSON object, or JSON by a schema, as OpenAI has it. It keeps to a "
        "schema, be it strict or not; an object that lists properties has no others unless the schema says so; "
        "one with keywords that could not be kept to is refused.",
    )
    structured_outputs: StructuredOutputs | None = Field(
        None, description="A schema, a regular expression, choices or a grammar to keep to, as vLLM has it."
    )
    guided_json: SchemaText = Field(None, description="A JSON schema, as vLLM had it.")
    guided_regex: str | None = Field(
        None, description="A regular expression in Rust's syntax, \\d and \\w of ASCII, as vLLM had it."
    )
    guided_choice: list[str] | None = Field(None, description="The texts to choose from, as vLLM had it.")
    guided_grammar: str | None = Field(None, description="A grammar in Lark's or GBNF's notation, as vLLM had it.")

    @model_validator(mode="after")
    def _keeps_to_one_format(self) -> Self:
        given = self.format_fields
        if len(given) > 1:
            raise invalid(f"cannot be kept to beside {given[0]}; give one of them", at=f".{given[1]}")
        return self

    @property
    def format_fields(self) -> list[str]:
        """The fields that say what the output keeps to: one, or none where any text will do."""
        given = [name for name in FormattedBody.model_fields if getattr(self, name) is not None]
        if self.response_format is not None and self.response_format.type == "text":
            given.remove("response_format")
        return given
