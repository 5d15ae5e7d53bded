"""Whether the loaded model can serve a body, and the engine's request if it can.

Knows the model's name, vocabulary and limits. Knows no HTTP but for the 404.
"""

from collections.abc import Iterable, Sequence
from http import HTTPStatus

from mtplx.configs.settings import Settings
from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.types import Request, SamplingParams
from mtplx.server.bridge import ServedModel
from mtplx.server.errors import ApiError
from mtplx.server.requests import SamplingBody


def require_name(name: str, model: ServedModel) -> None:
    """Raises ApiError with status 404 unless that is what the model is called."""
    if name != model.name:
        message = f"there is no model {name!r} here, only {model.name!r}"
        raise ApiError(HTTPStatus.NOT_FOUND, message, param="model", code="model_not_found")


def admit(
    body: SamplingBody,
    prompt: Sequence[int],
    *,
    request_id: str,
    max_tokens: int | None,
    default_max_tokens: int | None,
    model: ServedModel,
    settings: Settings,
) -> Request:
    """The request that `body` asks for, with a prompt of token ids.

    A default of None is all the room that the context leaves; a default that exceeds the room is lowered to it.
    Raises InvalidRequestError, or ContextLengthError if prompt and output do not fit the context.
    """
    _check_tokens("prompt", prompt, model)
    _check_tokens("logit_bias", body.logit_bias, model)
    room = max(1, model.limits.context_length - len(prompt))
    default = room if default_max_tokens is None else min(default_max_tokens, room)
    drafter = body.drafter or settings.drafter
    depth = settings.speculative_depth if body.speculative_depth is None else body.speculative_depth
    request = Request(
        id=request_id,
        prompt=tuple(prompt),
        max_tokens=default if max_tokens is None else max_tokens,
        sampling=_sampling(body),
        stop=tuple(body.stop),
        depth=depth,
        drafter=drafter,
    )
    model.limits.check(request)
    return request


def _check_tokens(field: str, tokens: Iterable[int], model: ServedModel) -> None:
    highest = max(tokens, default=0)
    if highest >= model.loaded.vocab_size:
        raise InvalidRequestError(
            f"{field}: there is no token {highest}; the vocabulary has {model.loaded.vocab_size}", field=field
        )


def _sampling(body: SamplingBody) -> SamplingParams:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
    }
    return SamplingParams(
        **{name: value for name, value in given.items() if value is not None},
        top_k=max(body.top_k or 0, 0),  # -1 too means no cut
        logit_bias=body.logit_bias,
        seed=body.seed,
    )
