"""From what a reply is to keep to, to the engine's grammar, without keeping the event loop waiting."""

import asyncio

from mtplx.engine.grammar.answering import AnswerGrammar, ThoughtMarks
from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.types import Grammar
from mtplx.server.bridge import ServedModel


async def compile_grammar(model: ServedModel, spec: GrammarSpec | None) -> Grammar | None:
    """None for none. Raises InvalidRequestError, which names the field, for a spec that cannot be kept to."""
    if spec is None:
        return None
    async with model.compiling:
        return await asyncio.to_thread(model.grammars.compile, spec)


def answer_only(model: ServedModel, answer: Grammar, *, is_thinking: bool) -> Grammar:
    """A grammar for the answer of a chat, which leaves the thoughts before it free, if the model has any.

    `is_thinking` says that the prompt ends within a thought.
    """
    tokenizer = model.loaded.tokenizer
    thinking = tokenizer.chat_abilities.thinking
    if thinking is None:
        return answer
    start, end = (
        tuple(tokenizer.encode(marker, add_special_tokens=False)) for marker in (thinking.start, thinking.end)
    )
    marks = ThoughtMarks(start, end, tokenizer.eos_token_ids)
    return AnswerGrammar(answer, marks, "within" if is_thinking else "start")
