"""POST /v1/chat/completions: a conversation goes in, the assistant's next message comes out."""

import fastapi

from mtplx.engine.types import Grammar
from mtplx.server import openapi
from mtplx.server.admission import require_few, require_name
from mtplx.server.bridge import ServedModel
from mtplx.server.chat_choices import ChatFormat, Reading
from mtplx.server.dependencies import Engine
from mtplx.server.grammars import answer_only, compile_grammar
from mtplx.server.messages.forcing import forced_calls
from mtplx.server.parsing import read_body
from mtplx.server.prompts import ChatPrompt, encode_chat
from mtplx.server.response_formats import grammar_spec
from mtplx.server.schemas.chat import ChatBody
from mtplx.server.schemas.examples import CHATS
from mtplx.server.schemas.replies import ChatChoice, ChatChunkChoice
from mtplx.server.schemas.tool_choice import ToolUse
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
    require_few(body, engine.settings)
    use = body.tool_use
    prompt = await encode_chat(
        model,
        [message.for_template() for message in body.messages],
        tools=use.offered,
        template_kwargs=body.chat_template_kwargs,
        continue_final_message=bool(body.continue_final_message),
    )
    reading = Reading(model.loaded.tokenizer.chat_abilities, use, prompt.is_thinking)
    return await serve(
        request,
        engine,
        model,
        body,
        [prompt.tokens],
        ChatFormat(reading, model.token_texts if body.logprobs else None),
        grammar=await _grammar(model, body, use, prompt),
        default_max_tokens=None,
    )


async def _grammar(model: ServedModel, body: ChatBody, use: ToolUse, prompt: ChatPrompt) -> Grammar | None:
    """What the message keeps to: calls that it must make, or a format of its answer."""
    abilities = model.loaded.tokenizer.chat_abilities
    spec = grammar_spec(body)
    calls = forced_calls(abilities, use, is_thinking=prompt.is_thinking, answer=spec)
    if calls is not None:
        return await compile_grammar(model, calls)
    answer = await compile_grammar(model, spec)
    return None if answer is None else answer_only(model, answer, is_thinking=prompt.is_thinking)
