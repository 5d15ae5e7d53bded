"""POST /v1/completions: prompts go in as they are, their continuations come out."""

import fastapi

from mtplx.server import openapi
from mtplx.server.admission import require_few, require_name
from mtplx.server.bridge import ServedModel
from mtplx.server.dependencies import Engine
from mtplx.server.grammars import compile_grammar
from mtplx.server.parsing import read_body
from mtplx.server.prompts import encode_fill_in, encode_text
from mtplx.server.response_formats import grammar_spec
from mtplx.server.schemas.completion import CompletionBody
from mtplx.server.schemas.examples import COMPLETIONS
from mtplx.server.schemas.replies import TextChoice
from mtplx.server.serving import serve
from mtplx.server.text_choices import Prompt, TextFormat

PATH = "/v1/completions"
DEFAULT_MAX_TOKENS = 16  # as OpenAI has it

_TextReply = openapi.reply_with(TextChoice, "TextReply")

router = fastapi.APIRouter()


@router.post(
    PATH,
    openapi_extra=openapi.takes(CompletionBody, COMPLETIONS),
    responses=openapi.replies(_TextReply, chunk=_TextReply) | openapi.errors(*openapi.GENERATION),
)
async def create_completion(request: fastapi.Request, engine: Engine) -> fastapi.Response:
    """Continue prompts."""
    body = await read_body(request, CompletionBody, engine)
    model = engine.require_model()
    require_name(body.model, model)
    require_few(body, engine.settings)
    prompts = [await _encode(model, prompt, body.suffix) for prompt in body.prompt]
    texts = None if body.logprobs is None else model.token_texts
    told = [
        Prompt(tokens, _text_of(prompt, model) if body.echo else None)
        for prompt, tokens in zip(body.prompt, prompts, strict=True)
    ]
    return await serve(
        request,
        engine,
        model,
        body,
        prompts,
        TextFormat(told, body.num_choices, texts),
        grammar=await compile_grammar(model, grammar_spec(body)),
        default_max_tokens=DEFAULT_MAX_TOKENS,
    )


async def _encode(model: ServedModel, prompt: str | list[int], suffix: str) -> list[int]:
    """The tokens to go on from."""
    if suffix:
        return await encode_fill_in(model, prompt, suffix)
    if isinstance(prompt, str):
        return await encode_text(model, prompt)
    model.limits.check_prompt(prompt)
    return prompt


def _text_of(prompt: str | list[int], model: ServedModel) -> str:
    """The prompt as it is given back."""
    return prompt if isinstance(prompt, str) else model.loaded.tokenizer.decode(prompt)
