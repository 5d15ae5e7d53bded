"""One completion request, from its validated body to its response, the same way for both endpoints."""

import hashlib
import time
from collections.abc import Sequence

import fastapi

from mtplx.engine.types import Grammar
from mtplx.server.admission import admit_all
from mtplx.server.bridge import AsyncEngine, ServedModel
from mtplx.server.connection import cut_off
from mtplx.server.prompts import encode_prediction
from mtplx.server.replies import ReplyFormat, ReplyWriter, new_id, streamed_reply, whole_reply
from mtplx.server.reply_plan import ReplyPlan
from mtplx.server.schemas.sampling import SamplingBody


async def serve(
    request: fastapi.Request,
    engine: AsyncEngine,
    model: ServedModel,
    body: SamplingBody,
    prompts: Sequence[Sequence[int]],
    reply_format: ReplyFormat,
    *,
    grammar: Grammar | None = None,
    default_max_tokens: int | None,
) -> fastapi.Response:
    """Submit and reply, with `body.num_choices` choices for each of the prompts, which are token ids,
    all of which keep to `grammar`.

    Raises EngineError while an error status can still be sent; later errors end the stream.
    """
    settings = engine.settings
    writer = ReplyWriter(reply_format, new_id(reply_format), int(time.time()), model)
    requests = admit_all(
        body,
        prompts,
        reply_id=writer.id,
        grammar=grammar,
        prediction=await encode_prediction(model, body.prediction),
        pool=_pool(request) if settings.ngram_pool_tokens else None,
        default_max_tokens=default_max_tokens,
        model=model,
        settings=settings,
    )
    plan = ReplyPlan(requests, body.num_candidates, body.num_choices)
    stream = engine.submit(requests, cut_off=cut_off(request))
    if body.stream:
        return await streamed_reply(
            request, stream, plan, writer, include_usage=body.include_usage, keep_alive_s=settings.keep_alive_s
        )
    return await whole_reply(request, stream, plan, writer)


def _pool(request: fastapi.Request) -> str:
    """Whose texts the request may copy from: those of the same API key, whose hash says so without keeping it."""
    return hashlib.sha256(request.headers.get("authorization", "").encode()).hexdigest()
