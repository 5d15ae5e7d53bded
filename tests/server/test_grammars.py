"""Grammars that take long to compile keep nobody waiting but each other."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.server.grammars import compile_grammar

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
