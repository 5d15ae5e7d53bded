"""Grammars hold for answers and leave thoughts free; those that take long to compile keep only each other waiting."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.text.abilities import ThinkingMarkers
from mtplx.server.grammars import answer_only, compile_grammar
from tests.engine.grammars import Automaton

NUM_THREADS = 64  # more than the event loop has


def test_many_grammars_that_take_long_leave_threads_for_other_work() -> None:
    are_done = threading.Event()
    model: Any = SimpleNamespace(
        compiling=asyncio.Lock(), grammars=SimpleNamespace(compile=lambda spec: are_done.wait(20.0) and spec)
    )
    specs = [GrammarSpec("choice", (f"number {number}",)) for number in range(NUM_THREADS)]

    async def compile_all() -> list[Any]:
        compiling = [asyncio.create_task(compile_grammar(model, spec)) for spec in specs]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(asyncio.to_thread(are_done.set), 10.0)
        return await asyncio.gather(*compiling)

    assert asyncio.run(compile_all()) == specs


def test_thoughts_that_the_prompt_has_opened_are_free_to_their_end() -> None:
    answer, think, end, eos = Automaton(8, {0: {1: 1}, 1: {0: 1}}), 5, 6, 0
    tokenizer = SimpleNamespace(
        chat_abilities=SimpleNamespace(thinking=ThinkingMarkers("<think>", "</think>")),
        encode=lambda marker, add_special_tokens: [{"<think>": think, "</think>": end}[marker]],
        eos_token_ids=frozenset({eos}),
    )
    model: Any = SimpleNamespace(loaded=SimpleNamespace(tokenizer=tokenizer))
    opened, unopened = (answer_only(model, answer, is_thinking=is_thinking) for is_thinking in (True, False))
    assert opened.allowed().tolist() == [token != eos for token in range(8)]
    assert unopened.allowed().tolist() == [token in (1, think) for token in range(8)]
    assert opened.after(end).allowed().tolist() == answer.allowed().tolist()
    tokenizer.chat_abilities.thinking = None
    assert answer_only(model, answer, is_thinking=False) is answer
