"""What /openapi.json says of bodies and errors, which routes read and write by hand, out of FastAPI's sight.

Knows OpenAPI's form, and every error there is. Knows no field: schemas describe their own.
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

from fastapi import FastAPI
from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import models_json_schema

from mtplx.engine.errors import EngineUnavailableError, NonFiniteLogitsError, OverloadedError, TimedOutError
from mtplx.server.errors import ApiError, from_engine
from mtplx.server.schemas.errors import ErrorReply
from mtplx.server.schemas.examples import Examples
from mtplx.server.schemas.fields import Body
from mtplx.server.schemas.replies import Choice, Reply

Responses: TypeAlias = dict[int | str, dict[str, Any]]  # as FastAPI has it

# What may become of a request that a model is asked to serve.
GENERATION = (400, 401, 404, 413, 415, 429, 500, 503, 504)

_COMPONENTS = "#/components/schemas/{model}"
_DEFINITIONS = "$defs"

_INTRODUCTION = """\
OpenAI's completions and chat completions, decoded speculatively, without changing what the model would have said.

Every field is supported, accepted because it changes nothing here, or refused with a 400 that names it; an unknown one
is refused too. Errors have OpenAI's form, and every response an `X-Request-Id`, which the log has as well.
"""

_BAD_REQUEST = ApiError(
    HTTPStatus.BAD_REQUEST, "max_tokens: Input should be greater than or equal to 0", "max_tokens", "invalid_value"
)
_NO_KEY = ApiError(HTTPStatus.UNAUTHORIZED, "this server wants an API key", code="invalid_api_key")
_NOT_FOUND = ApiError(
    HTTPStatus.NOT_FOUND, "there is no model 'gpt' here, only 'smollm2'", "model", code="model_not_found"
)
_TOO_LARGE = ApiError(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "the request body is larger than 8388608 bytes, the most this server takes",
    code="request_too_large",
)
_NO_JSON = ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type header must be application/json")
_OVERLOADED = from_engine(OverloadedError("128 requests wait", retry_after_s=2))

_ERRORS: Mapping[int, tuple[str, ApiError]] = {
    error.status: (meaning, error)
    for meaning, error in (
        ("The request is at fault, and tells where.", _BAD_REQUEST),
        ("The server wants an API key, and got none that it knows.", _NO_KEY),
        ("No model of that name is being served.", _NOT_FOUND),
        ("The body is too large.", _TOO_LARGE),
        ("The body is not declared to be JSON, or is compressed.", _NO_JSON),
        (
            "Too many requests are open; try again later.",
            _OVERLOADED,
        ),
        ("The model failed in this request.", from_engine(NonFiniteLogitsError("the logits are not finite"))),
        ("The model is not ready, or no longer.", from_engine(EngineUnavailableError("the model is being loaded"))),
        ("The request took longer than it may.", from_engine(TimedOutError("the request took longer than 5 s"))),
    )
}


def takes(kind: type[Body], examples: Examples) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads a body of that kind itself. `examples` are whole bodies by name."""
    named = {name.replace(" ", "_"): {"summary": name, "value": body} for name, body in examples.items()}
    content = {"schema": _schema(kind), "examples": named}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def replies(kind: type[BaseModel], *, chunk: type[BaseModel] | None = None, status: int = HTTPStatus.OK) -> Responses:
    """The `responses` of a route that replies with `kind`, or with events that hold a `chunk` each."""
    content: dict[str, Any] = {"application/json": {"schema": _schema(kind)}}
    meaning = "The reply."
    if chunk is not None:
        content["text/event-stream"] = {"schema": _event_schema(chunk)}
        meaning += (
            " If the request says `stream`, it comes as server-sent events: the data of each is a chunk, that of the "
            "last `[DONE]`. An error meanwhile is an event too, and then the last."
        )
    return {status: {"description": meaning, "content": content}}


def errors(*statuses: int) -> Responses:
    """The `responses` of a route that may fail so, and so as any may."""
    content = {"application/json": {"schema": _schema(ErrorReply)}}
    default = {"description": "Any other error.", "content": content}
    return {status: _error(*_ERRORS[status]) for status in statuses} | {"default": default}


def reply_with(choice: type[Choice], name: str) -> type[Reply]:
    """The model of a reply, or of a chunk of one, whose choices are of that kind."""
    choices = Field(description=Reply.model_fields["choices"].description)
    return create_model(name, __base__=Reply, choices=(list[choice], choices))  # type: ignore[valid-type]


def install(app: FastAPI) -> None:
    """Make `app` describe itself in full."""
    app.description = _INTRODUCTION
    described_by_fastapi = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = described_by_fastapi()
            _gather_components(document)
            _restore_examples(document)
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{}, {"key": []}]
        return app.openapi_schema or {}

    app.openapi = described  # type: ignore[method-assign]


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    """A reference to the schema of `kind`, which comes along among the definitions; see `_gather_components`."""
    names, definitions = models_json_schema([(kind, "validation")], ref_template=_COMPONENTS)
    return {**names[kind, "validation"], **definitions}


def _event_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Of an event whose data is JSON, in the form that OpenAPI 3.2 gives it."""
    name = f"{kind.__name__}Event"
    chunk, error = _schema(kind), _schema(ErrorReply)
    definitions = chunk.pop(_DEFINITIONS) | error.pop(_DEFINITIONS)
    content = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": [chunk, error]}}
    data = {
        "anyOf": [{"const": "[DONE]"}, content],
        "description": f"A {kind.__name__} or an ErrorReply as JSON, or [DONE].",
    }
    event = {
        "description": "A server-sent event.",
        "type": "object",
        "required": ["data"],
        "properties": {"data": data},
    }
    return {"$ref": _COMPONENTS.format(model=name), _DEFINITIONS: definitions | {name: event}}


def _gather_components(document: dict[str, Any]) -> None:
    components: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    for operation in _operations(document):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for media in part.get("content", {}).values():
                for name, schema in media.get("schema", {}).pop(_DEFINITIONS, {}).items():
                    if components.setdefault(name, schema) != schema:
                        raise ValueError(f"there are two schemas named {name}")


def _restore_examples(document: dict[str, Any]) -> None:
    """FastAPI has left out what is null in them."""
    for operation in _operations(document):
        for status, response in operation["responses"].items():
            media = response.get("content", {}).get("application/json", {})
            if "example" in media:
                media["example"] = _ERRORS[int(status)][1].body


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (operation for methods in document["paths"].values() for operation in methods.values())


def _error(meaning: str, example: ApiError) -> dict[str, Any]:
    content = {"application/json": {"schema": _schema(ErrorReply), "example": example.body}}
    headers = {
        name: {"description": "As the SDKs of OpenAI heed it.", "schema": {"type": "string"}, "example": value}
        for name, value in example.response().headers.items()
        if name in ("retry-after", "x-should-retry")
    }
    return {"description": meaning, "content": content, "headers": headers}
