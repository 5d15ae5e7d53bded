"""Whether the loaded model can serve a body, and the engine's request if it can.

Knows the model's name and limits. Knows no HTTP but for the 404.
"""

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from mtplx.configs.settings import Settings
from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.types import AUTO, PLAIN, Depth, Grammar, Request, SamplingParams, usual_acceptance
from mtplx.server.bridge import ServedModel
from mtplx.server.errors import ApiError
from mtplx.server.excerpts import excerpt
from mtplx.server.schemas.sampling import SamplingBody


def require_name(name: str, model: ServedModel) -> None:
    """Raises ApiError with status 404 unless that is what the model is called."""
    if name != model.name:
        message = f"there is no model {excerpt(name)!r} here, only {model.name!r}"
        raise ApiError(HTTPStatus.NOT_FOUND, message, param="model", code="model_not_found")


def require_few(body: SamplingBody, settings: Settings) -> None:
    """Raises InvalidRequestError if `body` asks for more texts than are ever open at a time."""
    num_requests = body.num_prompts * body.num_candidates
    most = settings.max_running + settings.max_waiting
    if num_requests > most:
        field = body.candidates_field if body.num_candidates > 1 else body.PROMPT_FIELD
        raise InvalidRequestError(
            f"this asks for {num_requests} texts at once, and this server takes {most}; ask for fewer", field=field
        )


def admit_all(body: SamplingBody, prompts: Sequence[Sequence[int]], *, reply_id: str, **others: Any) -> list[Request]:
    """The requests that `body` asks for, all candidates for each prompt, prompt after prompt; see `admit`."""
    firsts = [admit(body, prompt, request_id=reply_id, **others) for prompt in prompts]
    requests = [replace(first, choice=choice) for first in firsts for choice in range(body.num_candidates)]
    if len(requests) == 1:
        return requests
    return [replace(request, id=f"{reply_id}-{index}") for index, request in enumerate(requests)]


def admit(
    body: SamplingBody,
    prompt: Sequence[int],
    *,
    request_id: str,
    grammar: Grammar | None = None,
    prediction: Sequence[int] = (),
    pool: str | None = None,
    default_max_tokens: int | None,
    model: ServedModel,
    settings: Settings,
) -> Request:
    """The request for the first of the choices that `body` asks for, with prompt and prediction as token ids, what the
    text keeps to, and the pool of texts to copy from.

    A default of None is all the room that the context leaves; a default that exceeds the room is lowered to it.
    Raises InvalidRequestError, or ContextLengthError if prompt and output do not fit the context, which name the
    field as the body has it.
    """
    room = max(1, model.limits.context_length - len(prompt))
    default = room if default_max_tokens is None else min(default_max_tokens, room)
    drafter, depth = _speculation(body, settings)
    sampling, is_planned = _sampling(body), AUTO in (drafter, depth)
    request = Request(
        id=request_id,
        prompt=tuple(prompt),
        max_tokens=default if body.output_limit is None else body.output_limit,
        sampling=sampling,
        stop=tuple(body.stop),
        depth=depth if isinstance(depth, int) else settings.max_speculative_depth,
        drafter=drafter,
        auto_depth=depth == AUTO,
        acceptance=body.acceptance or settings.acceptance or usual_acceptance(sampling, is_planned=is_planned),
        prediction=tuple(prediction),
        pool=pool,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
        timeout_s=_least(body.timeout_s, settings.request_timeout_s),
        grammar=grammar,
        ignore_eos=bool(body.ignore_eos),
        stop_token_ids=tuple(body.stop_token_ids),
        min_tokens=body.min_tokens or 0,
        num_logprobs=body.num_logprobs,
        scores_prompt=body.scores_prompt,
    )
    try:
        model.limits.check(request)
    except InvalidRequestError as error:
        in_the_body = {"prompt": body.PROMPT_FIELD, "max_tokens": body.output_limit_field}
        error.field = in_the_body.get(error.field or "", error.field)
        raise
    return request


def _speculation(body: SamplingBody, settings: Settings) -> tuple[str, Depth]:
    """Drafter and depth. A request that asks for one of them means to speculate, whatever the server does by default:
    it gets a usable other one."""
    drafter: str = body.drafter or settings.drafter
    depth = settings.speculative_depth if body.depth is None else body.depth
    if body.drafter is None and body.depth and drafter == PLAIN:
        drafter = AUTO
    if body.drafter is not None and body.depth is None and depth == 0:
        depth = AUTO
    return drafter, depth


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


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
