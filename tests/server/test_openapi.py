"""The API's own description is complete: every field and error is told, and every example is taken."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from jsonschema_rs import meta

from mtplx.configs.settings import Settings
from mtplx.server.app import create_app
from mtplx.server.parsing import parse_body
from mtplx.server.schemas import examples
from mtplx.server.schemas.chat import ChatBody
from mtplx.server.schemas.completion import CompletionBody
from mtplx.server.schemas.errors import ErrorReply
from mtplx.server.schemas.fields import Body
from mtplx.server.schemas.tokenizing import DetokenizeBody, TokenizeBody
from tests.server.engines import letter_engine

Document = dict[str, Any]

GENERATING = {"200", "400", "401", "404", "413", "415", "429", "500", "503", "504", "default"}
READING = GENERATING - {"429", "504"}
STATUSES = {
    "/v1/completions": GENERATING,
    "/v1/chat/completions": GENERATING,
    "/tokenize": READING,
    "/detokenize": READING,
    "/tokenizer_info": {"200", "401", "500", "503", "default"},
    "/v1/models": {"200", "401", "500", "503", "default"},
    "/v1/models/{name}": {"200", "401", "404", "500", "503", "default"},
    "/health": {"200", "500", "503", "default"},
    "/metrics": {"200", "401", "500", "default"},
}
BODIES: dict[type[Body], examples.Examples] = {
    CompletionBody: examples.COMPLETIONS,
    ChatBody: examples.CHATS,
    TokenizeBody: examples.TOKENIZING,
    DetokenizeBody: examples.DETOKENIZING,
}


@pytest.fixture(scope="module")
def document() -> Document:
    return create_app(Settings(), letter_engine()).openapi()


def operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def test_the_description_is_valid(document: Document) -> None:
    assert document["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(document).validate()
    for schema in document["components"]["schemas"].values():
        meta.validate(schema)


def test_every_operation_is_explained_and_tells_each_way_it_may_end(document: Document) -> None:
    assert {path: set(operation["responses"]) for path, operation in operations(document)} == STATUSES
    for _, operation in operations(document):
        assert operation["summary"]
        assert operation["description"]
        for parameter in operation.get("parameters", ()):
            assert parameter["description"]


def test_every_error_has_an_example_in_its_own_form(document: Document) -> None:
    for path, operation in operations(document):
        for status, response in operation["responses"].items():
            if status in ("200", "default") or (path, status) == ("/health", "503"):
                continue
            media = response["content"]["application/json"]
            assert media["schema"] == {"$ref": "#/components/schemas/ErrorReply"}
            ErrorReply.model_validate(media["example"], extra="forbid")


def test_clients_learn_when_to_try_again(document: Document) -> None:
    responses = document["paths"]["/v1/completions"]["post"]["responses"]
    assert {status: list(response["headers"]) for status, response in responses.items() if response.get("headers")} == {
        "429": ["retry-after"],
        "503": ["retry-after"],
        "504": ["x-should-retry"],
    }


def test_every_property_is_described(document: Document) -> None:
    schemas = document["components"]["schemas"]
    silent = [
        f"{kind}.{name}"
        for kind, schema in schemas.items()
        for name, field in schema.get("properties", {}).items()
        if not field.get("description")
    ]
    assert silent == []


@pytest.mark.parametrize("kind", BODIES)
def test_examples_show_every_field_and_are_taken(kind: type[Body]) -> None:
    bodies = BODIES[kind].values()
    assert {name for body in bodies for name in body} == set(kind.model_fields)
    for body in bodies:
        parse_body(json.dumps(body).encode(), kind)
