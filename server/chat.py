"""POST /v1/chat/completions: a conversation goes in, the assistant's next message comes out."""

import fastapi

from mtplx.engine.text.tokenizer import ChatMessage
from mtplx.server import openapi
from mtplx.server.admission import require_name
from mtplx.server.chat_choices import ChatFormat
from mtplx.server.dependencies import Engine
from mtplx.server.parsing import read_body
from mtplx.server.prompts import encode_chat
from mtplx.server.schemas.chat import ChatBody
from mtplx.server.schemas.examples import CHATS
from mtplx.server.schemas.messages import Message
from mtplx.server.schemas.replies import ChatChoice, ChatChunkChoice
from mtplx.server.serving import serve

PATH = "/v1/chat/completions"

router = fastapi.APIRouter()


@router.post(
    PATH,
    openapi_extra=openapi.takes(ChatBody, CHATS),
    responses=openapi.replies(
        openapi.reply_with(ChatChoice, "ChatReply"), chunk=openapi.reply_with(ChatChunkChoice, "ChatChunk")
    )
    | openapi.errors(*openapi.GENERATION),
)
async def create_chat_completion(request: fastapi.Request, engine: Engine) -> fastapi.Response:
    """Answer in a conversation."""
    body = await read_body(request, ChatBody, engine)
    model = engine.require_model()
    require_name(body.model, model)
    prompt = await encode_chat(model, [for_template(message) for message in body.messages])
    return await serve(
        request,
        engine,
        model,
        body,
        [prompt],
        ChatFormat(model.token_texts if body.logprobs else None),
        default_max_tokens=None,
    )


def for_template(message: Message) -> ChatMessage:
    return message.for_template()
