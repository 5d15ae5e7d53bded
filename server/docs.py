"""GET /docs: the OpenAPI document as a page that loads nothing from elsewhere, to be read without internet too.

Knows OpenAPI's form; knows no route.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import fastapi
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup, escape

router = fastapi.APIRouter()

_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters or fewer",
    "minItems": "{} items or more",
    "maxItems": "{} items or fewer",
}

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ info.title }} {{ info.version }}</title>
<style>
  :root { color-scheme: light dark }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
  h2 { margin-top: 3rem; border-top: 1px solid #8888; padding-top: 1rem; overflow-wrap: anywhere }
  table { border-collapse: collapse; width: 100% }
  td, th { border-top: 1px solid #8884; padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top }
  pre { background: #8882; padding: .8rem; overflow-x: auto }
  summary { cursor: pointer }
</style>
{% macro fields(schema) %}
<table>
{% for name, field in in_order(schema) %}
<tr><td><code>{{ name }}</code>{{ " (required)" if name in schema.get("required", []) }}
<td>{{ type_of(field) }}<td>{{ words(field.description) }}
{% endfor %}
</table>
{% endmacro %}
{% macro content(media) %}
{% for kind, described in media.items() %}
<p><code>{{ kind }}</code>: {{ type_of(described.get("schema", {})) }}
{% if "example" in described %}<pre>{{ to_json(described.example) }}</pre>{% endif %}
{% for example in described.get("examples", {}).values() %}
<details><summary>Example: {{ example.summary }}</summary><pre>{{ to_json(example.value) }}</pre></details>
{% endfor %}
{% endfor %}
{% endmacro %}
<h1>{{ info.title }} {{ info.version }}</h1>
{% for paragraph in info.get("description", "").split("\\n\\n") %}<p>{{ words(paragraph) }}{% endfor %}
<p>The same for programs: <a href="openapi.json">openapi.json</a>
<ul>
{% for path, operations in paths.items() %}{% for method, operation in operations.items() %}
<li><a href="#{{ operation.operationId }}">{{ method | upper }} {{ path }}</a>
{% endfor %}{% endfor %}
</ul>
{% for path, operations in paths.items() %}{% for method, operation in operations.items() %}
<h2 id="{{ operation.operationId }}">{{ method | upper }} {{ path }}</h2>
<p>{{ words(operation.description or operation.summary) }}
{% if operation.requestBody %}
<h3>Body</h3>
{{ content(operation.requestBody.content) }}
{% for described in operation.requestBody.content.values() %}{{ fields(named(described.schema)) }}{% endfor %}
{% endif %}
<h3>Responses</h3>
{% for status, response in operation.responses.items() %}
<details><summary>{{ status }}: {{ response.description }}</summary>{{ content(response.get("content", {})) }}</details>
{% endfor %}
{% endfor %}{% endfor %}
{% for name, schema in schemas.items() %}
<h2 id="schema-{{ name }}">{{ name }}</h2>
<p>{{ words(schema.description) }}
{{ fields(schema) }}
{% endfor %}
</html>
"""


@router.get("/docs", include_in_schema=False)
async def docs(request: fastapi.Request) -> HTMLResponse:
    """What there is to ask this server, for people."""
    return HTMLResponse(page(request.app.openapi()))


def page(document: Mapping[str, Any]) -> str:
    """The OpenAPI document as HTML."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_nothing_for_none)
    schemas = document.get("components", {}).get("schemas", {})
    helpers: dict[str, Callable[..., Any]] = {
        "in_order": _in_order,
        "named": lambda schema: schemas.get(_name(schema), schema),
        "to_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        "type_of": _type,
        "words": _words,
    }
    environment.globals |= helpers
    return environment.from_string(_PAGE).render(info=document["info"], paths=document["paths"], schemas=schemas)


def _name(schema: Mapping[str, Any]) -> str:
    """Under which the document has the schema that this one refers to."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _type(schema: Mapping[str, Any]) -> Markup:
    """What a value of this schema is, in words that lead to the schemas they name."""
    if name := _name(schema):
        return Markup('<a href="#schema-{0}">{0}</a>').format(name)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return Markup(" or ").join(_type(option) for option in schema[several])
    if "const" in schema or "enum" in schema:
        return Markup(" or ").join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    kind: str = schema.get("type", "anything")
    if kind == "array":
        kind = Markup("list of {}").format(_type(schema.get("items", {})))
    limits = [words.format(f"{schema[name]:.15g}") for name, words in _LIMITS.items() if name in schema]
    return Markup(", ").join([kind, *limits])


def _in_order(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields, first those that must be there."""
    required = schema.get("required", ())
    return sorted(schema.get("properties", {}).items(), key=lambda field: field[0] not in required)


def _words(text: str | None) -> Markup:
    """A description, with what stands in backticks as code."""
    parts = (text or "").split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def _nothing_for_none(value: object) -> object:
    return "" if value is None else value
