"""The requests of a load: chat completions of a fixed output length. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle
from typing import Any

from mtplx.server.bench.prompts import Prompt

_NEVER = -100  # the bias of tokens that would end a text before its time


def endless_bodies(
    prompts: Sequence[Prompt], *, max_tokens: int, end_tokens: Iterable[int], fields: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """A body for each prompt in turn, without end and without a model's name; greedy unless `fields` say otherwise.

    No two begin alike, so that no server can reuse what it computed for another.
    """
    bias = {str(token): _NEVER for token in end_tokens}
    for number, prompt in zip(count(1), cycle(prompts)):
        first, *rest = prompt.messages
        numbered = {**first, "content": f"{number}. {first['content']}"}
        body = {"messages": [numbered, *rest], "max_tokens": max_tokens, "temperature": 0}
        yield {**body, **({"logit_bias": bias} if bias else {}), **fields}
