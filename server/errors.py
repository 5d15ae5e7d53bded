"""What a client is told when something goes wrong: OpenAI's error body and a status.

Knows the engine's error classes and HTTP's status codes. A client never gets to see a traceback.
"""

import math
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mtplx.engine.errors import (
    ContextLengthError,
    EngineError,
    EngineUnavailableError,
    InvalidRequestError,
    NonFiniteLogitsError,
    OverloadedError,
    TimedOutError,
)
from mtplx.server.access import request_id
from mtplx.server.excerpts import excerpt

CLIENT_CLOSED_REQUEST = 499  # nginx's; nobody is there to read it, but the access log tells

_UNAVAILABLE_RETRY_S = 5


@dataclass(eq=False)
class ApiError(Exception):
    """An answer other than success, as OpenAI's API would give it.

    Its clients try again by themselves after a 408, a 409, a 429 and all from 500 up, unless `should_retry` says no.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    type: str = "invalid_request_error"
    retry_after_s: int | None = None
    should_retry: bool = True

    @property
    def body(self) -> dict[str, object]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if not self.should_retry:
            headers["X-Should-Retry"] = "false"
        return JSONResponse(self.body, status_code=self.status, headers=headers)


def from_engine(error: EngineError) -> ApiError:
    """The answer to a request that the engine could not serve."""
    message = str(error)
    match error:
        case ContextLengthError():
            return ApiError(HTTPStatus.BAD_REQUEST, message, param=error.field, code="context_length_exceeded")
        case InvalidRequestError():
            return ApiError(HTTPStatus.BAD_REQUEST, message, param=error.field, code="invalid_value")
        case OverloadedError():
            return ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                message,
                code="rate_limit_exceeded",
                type="rate_limit_error",
                retry_after_s=math.ceil(error.retry_after_s),
            )
        case EngineUnavailableError():
            return ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                message,
                code="service_unavailable",
                type="server_error",
                retry_after_s=_UNAVAILABLE_RETRY_S,
            )
        case TimedOutError():
            # Once more it would take as long, and keep others waiting meanwhile.
            return ApiError(
                HTTPStatus.GATEWAY_TIMEOUT, message, code="timeout", type="server_error", should_retry=False
            )
        case NonFiniteLogitsError():
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, message, code="non_finite_logits", type="server_error")
        case _:
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, message, code="engine_error", type="server_error")


def install(app: FastAPI) -> None:
    """Make every error of `app` leave as an OpenAI error body."""
    app.add_exception_handler(ApiError, _answer)
    app.add_exception_handler(EngineError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(ClientDisconnect, _answer)
    app.add_exception_handler(Exception, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    match error:
        case ApiError():
            return error.response()
        case EngineError():
            return from_engine(error).response()
        case ClientDisconnect():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            message = f"there is nothing at {excerpt(request.method)} {excerpt(request.url.path)}"
            return ApiError(HTTPStatus.NOT_FOUND, message, code="not_found").response()
        case HTTPException(status_code=HTTPStatus.METHOD_NOT_ALLOWED):
            message = f"{excerpt(request.method)} is not allowed at {excerpt(request.url.path)}"
            answer = ApiError(error.status_code, message, code="method_not_allowed").response()
            answer.headers.update(error.headers or {})
            return answer
        case HTTPException():
            return ApiError(error.status_code, error.detail).response()
        case _:
            # Starlette raises the error again after this answer; who logs it is `Access`.
            message = f"the server made a mistake in request {request_id(request.scope)}; its log says more"
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, message, type="server_error").response()
