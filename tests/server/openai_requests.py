"""OpenAI's own idea of its requests: every field of both endpoints, and values of all kinds that each may have.

Read from the types of the `openai` package, which are made from OpenAI's specification. Knows nothing of our schemas.
"""

import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Required, Union, get_args, get_origin

from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from typing_extensions import get_type_hints, is_typeddict  # typing's do not know those of the package

PARAMS = {
    "/v1/completions": (completions.CompletionCreateParamsBase, completions.CompletionCreateParamsStreaming),
    "/v1/chat/completions": (chat.CompletionCreateParamsBase, chat.CompletionCreateParamsStreaming),
}

_PLAIN: dict[Any, list[Any]] = {
    type(None): [None],
    str: ["a"],
    int: [1],
    float: [0.5],
    bool: [True, False],
    object: [{}],
    Any: [{}],
}


def fields(path: str) -> dict[str, Any]:
    """The type of each field of the endpoint, by the field's name."""
    return {name: hint for kind in PARAMS[path] for name, hint in get_type_hints(kind).items()}


def samples(hint: Any) -> list[Any]:
    """JSON values of the type: one of each alternative, and each key of an object at least once, alone and in turn."""
    if is_typeddict(hint):
        return list(_objects(hint))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _PLAIN[hint]
    if origin is Literal:
        return list(arguments)
    if origin in (Union, types.UnionType):
        return [value for kind in arguments for value in samples(kind)]
    if issubclass(origin, dict):
        return [{"1": value} for value in samples(arguments[1])]
    if issubclass(origin, Iterable) or origin.__name__ == "SequenceNotStr":
        return [[value] for value in samples(arguments[0])]
    raise TypeError(f"no samples of {hint}")


def _objects(kind: Any) -> Iterator[dict[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)  # those tell what is required; the class does not know it
    choices = {name: samples(hint) for name, hint in get_type_hints(kind).items()}
    least = {name: choices[name][0] for name, hint in hints.items() if get_origin(hint) is Required}
    yield least
    for name, values in choices.items():
        for value in values:
            yield {**least, name: value}
