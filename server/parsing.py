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

from mtplx.server.bridge import AsyncEngine
from mtplx.server.errors import ApiError
from mtplx.server.excerpts import excerpt
from mtplx.server.schemas.fields import Body

Kind = TypeVar("Kind", bound=Body)


async def read_body(request: Request, kind: type[Kind], engine: AsyncEngine) -> Kind:
    """The validated body of a request. Raises ApiError, or EngineUnavailableError if the engine stops meanwhile."""
    # A page in a browser can make it send a form anywhere, but JSON only where that is allowed.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type header must be application/json")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        message = f"the Content-Encoding {excerpt(encoding)!r} is not supported; send the body as it is"
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    return parse_body(await engine.unless_stopping(request.body()), kind)


def parse_body(data: bytes, kind: type[Kind]) -> Kind:
    """The validated body that `data` spells. Raises ApiError with status 400."""
    try:
        fields = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise _bad_request(f"the body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _bad_request("the body must be a JSON object")
    _refuse_unsupported(fields, kind.UNSUPPORTED)
    try:
        return kind.model_validate({name: value for name, value in fields.items() if name not in kind.UNSUPPORTED})
    except ValidationError as error:
        raise _explain(error.errors(include_url=False, include_input=False)[0]) from None


def _refuse_unsupported(fields: Mapping[str, object], unsupported: Mapping[str, tuple[object, ...]]) -> None:
    for name, harmless in unsupported.items():
        value = fields.get(name)
        if value is None or any(value == other and type(value) is type(other) for other in harmless):
            continue
        if not harmless:
            raise _bad_request(f"{name} is not supported by this server", name, "unsupported_parameter")
        supported = " or ".join(json.dumps(other) for other in harmless)
        raise _bad_request(f"{name}: only {supported} is supported by this server", name, "unsupported_value")


def _explain(problem: ErrorDetails) -> ApiError:
    context = problem.get("ctx", {})
    path = (_path(problem["loc"]) + context.get("at", "")).removeprefix(".")
    return _bad_request(f"{path}: {problem['msg']}", path, context.get("code") or _code(problem["type"]))


def _code(kind: str) -> str:
    """OpenAI's code for a kind of problem that pydantic finds."""
    if kind == "missing":
        return "missing_required_parameter"
    return "invalid_type" if kind.endswith("_type") or kind == "int_from_float" else "invalid_value"


def _path(steps: Sequence[int | str]) -> str:
    """Where a problem is, as in .messages[0].content."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{excerpt(step)}" for step in steps)


def _bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)
