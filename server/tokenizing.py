"""POST /tokenize and POST /detokenize: from texts and chats to token ids, and back; GET /tokenizer_info.

What takes long is done on a thread, from the text to the reply's bytes.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby

import fastapi

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.tokenizer import Tokenizer
from mtplx.server import openapi
from mtplx.server.admission import require_name
from mtplx.server.bridge import ServedModel
from mtplx.server.dependencies import Engine
from mtplx.server.parsing import read_body
from mtplx.server.schemas.examples import DETOKENIZING, TOKENIZING
from mtplx.server.schemas.tokenizing import DetokenizeBody, DetokenizeReply, TokenizeBody, TokenizeReply, TokenizerInfo

_ERRORS = openapi.errors(400, 401, 404, 413, 415, 500, 503)

router = fastapi.APIRouter()


@router.post(
    "/tokenize",
    openapi_extra=openapi.takes(TokenizeBody, TOKENIZING),
    responses=openapi.replies(TokenizeReply) | _ERRORS,
)
async def tokenize(request: fastapi.Request, engine: Engine) -> fastapi.Response:
    """The tokens of a prompt, or of the prompt that a chat becomes. They may be more than the context holds."""
    body = await read_body(request, TokenizeBody, engine)
    model = engine.require_model()
    require_name(body.model or model.name, model)

    def reply() -> bytes:
        tokenizer = model.loaded.tokenizer
        tokens = _tokens(body, tokenizer)
        spellings = _spellings(tokens, tokenizer.vocabulary()) if body.return_token_strs else None
        return (
            TokenizeReply(
                count=len(tokens), max_model_len=model.limits.context_length, tokens=tokens, token_strs=spellings
            )
            .model_dump_json()
            .encode()
        )

    return fastapi.Response(await asyncio.to_thread(reply), media_type="application/json")


@router.post(
    "/detokenize",
    openapi_extra=openapi.takes(DetokenizeBody, DETOKENIZING),
    responses=openapi.replies(DetokenizeReply) | _ERRORS,
)
async def detokenize(request: fastapi.Request, engine: Engine) -> fastapi.Response:
    """The text of tokens, special ones spelled out."""
    body = await read_body(request, DetokenizeBody, engine)
    model = engine.require_model()
    require_name(body.model or model.name, model)

    def reply() -> bytes:
        _check_vocabulary(body.tokens, model)
        return DetokenizeReply(prompt=text_of(body.tokens, model.loaded.tokenizer)).model_dump_json().encode()

    return fastapi.Response(await asyncio.to_thread(reply), media_type="application/json")


@router.get("/tokenizer_info", responses=openapi.replies(TokenizerInfo) | openapi.errors(401, 500, 503))
async def tokenizer_info(engine: Engine) -> dict[str, str | None]:
    """The special tokens that clients need to know when they tokenize by this server."""
    texts = engine.require_model().loaded.tokenizer.special_texts
    return {name: texts.get(name) for name in TokenizerInfo.model_fields}


def text_of(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text that becomes these tokens: what is between special tokens, which are spelled, is a text of its own."""
    texts, vocabulary = [], tokenizer.vocabulary()
    for is_special, together in groupby(tokens, lambda token: not tokenizer.bytes_of(token)):
        run = list(together)
        texts += _spellings(run, vocabulary) if is_special else [tokenizer.decode(run)]
    return "".join(texts)


def _tokens(body: TokenizeBody, tokenizer: Tokenizer) -> list[int]:
    if body.messages is None:
        assert body.prompt is not None
        return tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)
    begins_turn = not body.continue_final_message if body.add_generation_prompt is None else body.add_generation_prompt
    text = tokenizer.render_chat(
        [message.for_template() for message in body.messages],
        tools=[tool.for_template() for tool in body.tools or ()],
        template_kwargs=body.chat_template_kwargs,
        continue_final_message=bool(body.continue_final_message),
        add_generation_prompt=begins_turn,
    )
    return tokenizer.encode(text, add_special_tokens=bool(body.add_special_tokens))


def _spellings(tokens: Sequence[int], vocabulary: Mapping[int, str]) -> list[str]:
    """As model files spell the tokens; nothing for an id that stands for none."""
    return [vocabulary.get(token, "") for token in tokens]


def _check_vocabulary(tokens: Sequence[int], model: ServedModel) -> None:
    unknown = max(tokens, default=0)
    if unknown >= model.loaded.vocab_size:
        raise InvalidRequestError(
            f"there is no token {unknown}; the vocabulary has those from 0 to {model.loaded.vocab_size - 1}",
            field="tokens",
        )
