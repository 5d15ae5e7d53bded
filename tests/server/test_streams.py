"""Between engine and reader: who falls behind is given up, who waits is not, and whoever leaves early aborts."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from mtplx.engine.types import Update
from mtplx.server.streams import RequestStream
from tests.server.conftest import DEADLINE_S
from tests.server.steppers import completion


class Told:
    """What a stream told of itself."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def stream(self, *request_ids: str, max_buffered: int = 2) -> RequestStream:
        return RequestStream(
            request_ids or ("r",),
            abort=lambda request_id: self.calls.append(f"abort {request_id}"),
            give_up=lambda: self.calls.append("give up"),
            max_buffered=max_buffered,
        )


Result = TypeVar("Result")

END = Update("r", completion=completion())


def test_updates_come_in_order_and_end_with_the_completion() -> None:
    async def read() -> list[str]:
        stream = Told().stream()
        stream.push(Update("r", ("a",)))
        stream.push(Update("r", ("b",)))
        stream.push(END)
        return [update.text for update in [update async for update in stream]]

    assert run(read()) == ["a", "b", ""]


def test_the_first_update_stays_the_first() -> None:
    async def read() -> tuple[str, str]:
        stream = Told().stream()
        stream.push(Update("r", ("a",)))
        return (await stream.first()).text, (await anext(aiter(stream))).text

    assert run(read()) == ("a", "a")


def test_a_reader_that_waits_is_never_behind() -> None:
    told = Told()

    async def read() -> int:
        stream = told.stream(max_buffered=2)
        reading = asyncio.ensure_future(_count(stream))
        for _ in range(3):
            await asyncio.sleep(0)  # lets it read what there is
            for _ in range(100):
                stream.push(Update("r", ("a",)))
        stream.push(END)
        return await reading

    assert run(read()) == 301
    assert told.calls == []


def test_a_reader_that_is_busy_while_too_many_come_is_given_up_once() -> None:
    told = Told()

    async def read() -> None:
        stream = told.stream(max_buffered=2)
        updates = aiter(stream)
        stream.push(Update("r", ("a",)))
        await anext(updates)
        for text in "bc":
            stream.push(Update("r", (text,)))
        assert told.calls == []
        for text in "def":
            stream.push(Update("r", (text,)))

    run(read())
    assert told.calls == ["give up"]


def test_leaving_early_aborts_and_leaving_after_the_end_does_not() -> None:
    told = Told()
    with told.stream():
        pass
    with told.stream() as stream:
        stream.push(END)
    assert told.calls == ["abort r"]


def run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


async def _count(stream: RequestStream) -> int:
    return len([update async for update in stream])
