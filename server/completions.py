"""POST /v1/completions: a prompt goes in as it is, its continuation comes out."""

from collections.abc import Sequence

import fastapi

from mtplx.engine.types import FinishReason
from mtplx.server.admission import require_name
from mtplx.server.dependencies import Engine
from mtplx.server.parsing import body_schema, read_body
from mtplx.server.prompts import encode_text
from mtplx.server.schemas.completion import CompletionBody
from mtplx.server.schemas.replies import Choice, TextChoice
from mtplx.server.serving import serve

PATH = "/v1/completions"
DEFAULT_MAX_TOKENS = 16  # as OpenAI has it

router = fastapi.APIRouter()


class TextFormat:
    """A choice is a text, and a chunk of it has the same form."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def whole(self, text: str, reason: FinishReason) -> Choice:
        return TextChoice(text=text, finish_reason=reason)

    def opening(self) -> Sequence[Choice]:
        return ()

    def piece(self, text: str) -> Choice:
        return TextChoice(text=text, finish_reason=None)

    def closing(self, reason: FinishReason) -> Choice:
        return TextChoice(text="", finish_reason=reason)


@router.post(PATH, openapi_extra=body_schema(PATH, CompletionBody))
async def create_completion(request: fastapi.Request, engine: Engine) -> fastapi.Response:
    """Continue a prompt."""
    body = await read_body(request, CompletionBody, engine)
    model = engine.require_model()
    require_name(body.model, model)
    prompt = await encode_text(model, body.prompt) if isinstance(body.prompt, str) else body.prompt
    return await serve(
        request,
        engine,
        model,
        body,
        prompt,
        TextFormat(),
        default_max_tokens=DEFAULT_MAX_TOKENS,
    )
