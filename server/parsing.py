"""From the bytes of a request to a validated body, or to a 400 that says what is wrong and where.

Knows JSON and validation errors; knows no field in particular.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar

from fastapi import Request
from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from mtplx.server.errors import ApiError
from mtplx.server.requests import SamplingBody

Body = TypeVar("Body", bound=SamplingBody)


def body_schema(path: str, kind: type[SamplingBody]) -> dict[str, object]:
    """The OpenAPI description of the body of POST `path`, which reads it itself."""
    here = f"#/paths/{path.replace('/', '~1')}/post/requestBody/content/application~1json/schema/$defs/{{model}}"
    schema = kind.model_json_schema(ref_template=here)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The validated body of a request. Raises ApiError."""
    # A page in a browser can make it send a form anywhere, but JSON only where that is allowed.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type header must be application/json")
    return parse_body(await request.body(), kind)


def parse_body(data: bytes, kind: type[Body]) -> Body:
    """The validated body that `data` spells. Raises ApiError with status 400."""
    try:
        fields = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise _bad_request(f"the body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _bad_request("the body must be a JSON object")
    _refuse_unsupported(fields, kind.UNSUPPORTED)
    try:
        body = kind.model_validate({name: value for name, value in fields.items() if name not in kind.UNSUPPORTED})
    except ValidationError as error:
        raise _explain(error.errors()) from None
    if body.stream_options is not None and not body.stream:
        raise _bad_request("stream_options: is allowed only when stream is true", "stream_options")
    return body


def _refuse_unsupported(fields: Mapping[str, object], unsupported: Mapping[str, tuple[object, ...]]) -> None:
    for name, harmless in unsupported.items():
        value = fields.get(name)
        if value is not None and not any(value == other and type(value) is type(other) for other in harmless):
            exception = f" with another value than {json.dumps(harmless[0])}" if harmless else ""
            raise _bad_request(f"{name} is not supported by this server{exception}", name)


def _explain(problems: Sequence[ErrorDetails]) -> ApiError:
    unknown = [_path(problem) for problem in problems if problem["type"] == "extra_forbidden"]
    if unknown:
        return _bad_request(f"unknown field{'s' * (len(unknown) > 1)}: {', '.join(unknown)}", unknown[0])
    first = problems[0]
    code = "missing_required_parameter" if first["type"] == "missing" else None
    return _bad_request(f"{_path(first)}: {first['msg']}", _path(first), code)


def _path(problem: ErrorDetails) -> str:
    """Where the problem is, as in messages[0].content."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
    return "".join(steps).removeprefix(".")


def _bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)
