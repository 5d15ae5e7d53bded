"""Requests as nobody should send them, but somebody will: strategies from nearly valid bodies to noise.

They begin with the examples of the API's own description, so that a new field is tried as soon as it has one. Knows no
server and no answer.
"""

import functools
import json
import operator
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from mtplx.server.schemas.examples import Examples

_JSON = {"Content-Type": "application/json"}
_DEEP = 5000  # levels, more than any parser should follow


@dataclass(frozen=True)
class Attempt:
    """A request. With `reads`, the client leaves after that many bytes of the answer; with `holds_back`, it leaves
    before it has sent the last so many bytes of the body."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    reads: int | None = None
    holds_back: int = 0


# Each of them has been somebody's undoing: types, sizes, depths, and text that is none.
_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 5, 20, 21, 1.5, -0.0, 1e-320, 1e308, -1e308),
    *(2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, float("nan"), float("inf")),
    *(
        "",
        " ",
        "\0",
        "auto",
        "none",
        "1",
        "null",
        "\ud800",
        "\udfff\ud800",
        "\u202e",
        "e\u0301" * 40,
        "🂡" * 9,
        "a" * 5000,
    ),
    *(
        "(a+)+$",
        "[",
        "root ::= root",
        "\\p{Greek}",
        "{{ raise }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "../../etc",
    ),
    *([], [[]], [None], [""], ["a", 1], list(range(300)), [[1], []], ["a"] * 200, [{}], [[[[[[]]]]]]),
    *({}, {"": None}, {"type": "text"}, {"type": "object"}, {"\ud800": 1}, {"a": {"b": {"c": [{}]}}}),
    *({"type": "json_object"}, {"$ref": "#"}, {"type": "content", "content": ""}, {str(i): i for i in range(300)}),
    *({"anyOf": [{"$ref": "#"}]}, {"type": "function", "function": {"name": "f"}}, {"include_usage": True}),
]

odd_values = st.sampled_from(_ODD)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=10,
)


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value within `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


@st.composite
def nearly_valid_bodies(draw: st.DrawFn, examples: Examples, model: str) -> dict[str, Any]:
    """An example with some fields of the others, and up to four mistakes in it."""
    bodies = list(examples.values())
    body = deepcopy(dict(draw(st.sampled_from(bodies))))
    others = [(name, value) for other in bodies for name, value in other.items() if name not in body]
    body |= deepcopy(dict(draw(st.lists(st.sampled_from(others), max_size=3)))) if others else {}
    body["model"] = model
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 4]))):
        if places := list(_places(body)):
            _spoil(draw, body, draw(st.sampled_from(places)))
    return body


def _spoil(draw: st.DrawFn, body: dict[str, Any], place: tuple[Any, ...]) -> None:
    *path, last = place
    holder = functools.reduce(operator.getitem, path, body)
    match draw(st.sampled_from(["replace", "replace", "replace", "add", "wrap", "delete"])):
        case "replace":
            holder[last] = deepcopy(draw(odd_values | any_json))
        case "add" if isinstance(holder, dict):
            name = draw(st.sampled_from(["extra", "type", "name", "n", "logprobs", "\ud800"]))
            holder[name] = deepcopy(draw(odd_values))
        case "delete" if isinstance(holder, dict):
            del holder[last]
        case _:
            holder[last] = [holder[last]]


def _encode(body: object) -> bytes:
    return json.dumps(body).encode()


def _posts(path: str, examples: Examples, model: str) -> st.SearchStrategy[Attempt]:
    bodies = nearly_valid_bodies(examples, model).map(_encode)
    return st.builds(Attempt, st.just("POST"), st.just(path), bodies, st.just(_JSON))


def _dropped(path: str, examples: Examples, model: str) -> st.SearchStrategy[Attempt]:
    """Requests, streams most of all, whose clients leave while they send or read."""
    bodies = st.builds(
        lambda body, stream: _encode({**body, "stream": stream, "max_tokens": 100}),
        nearly_valid_bodies(examples, model),
        st.sampled_from([True, True, False]),
    )
    return st.builds(
        Attempt,
        st.just("POST"),
        st.just(path),
        bodies,
        st.just(_JSON),
        st.sampled_from([0, 1, 100, 400, 1000]),
        st.sampled_from([0, 0, 0, 1, 20]),
    )


_nonsense_bodies = st.one_of(
    st.binary(max_size=200),
    any_json.map(_encode),
    odd_values.map(_encode),
    st.sampled_from(
        [
            b"[" * _DEEP,
            b'{"a":' * _DEEP,
            b'{"messages":' + b"[" * _DEEP + b"]" * _DEEP + b"}",
            b'{"max_tokens": ' + b"9" * _DEEP + b"}",
            b'{"temperature": 1e999}',
            b'{"model": "a", "model": "b"}',
            b'\xef\xbb\xbf{"model": "a"}',
            '{"model": "a"}'.encode("utf-16"),
            b'{"model": "\xff\xfe"}',
            b'{"model": "\xed\xa0\x80"}',
            b'{"prompt": "\\ud800"}',
            b'{"model": NaN}',
            b"{'model': 'a'}",
            b"",
        ]
    ),
)

_media_types = st.sampled_from(
    [
        *(
            "application/json",
            "APPLICATION/JSON; charset=utf-8",
            "application/json; charset=latin-1",
            "application/jsonp",
        ),
        *("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "", ";", "é"),
    ]
)

_header_values = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=100)
_headers = st.dictionaries(
    st.sampled_from(
        [
            *("Accept", "Accept-Encoding", "Authorization", "Content-Encoding", "Cookie", "Expect", "Host", "Origin"),
            *(
                "Access-Control-Request-Method",
                "If-None-Match",
                "Range",
                "User-Agent",
                "X-Forwarded-For",
                "X-Request-Id",
            ),
            *("OpenAI-Organization", "Idempotency-Key", "X-Stainless-Retry-Count", "Sec-Fetch-Mode", "Upgrade"),
        ]
    ),
    _header_values | st.sampled_from(["gzip", "100-continue", "websocket", "Bearer ", "bytes=0-", "a" * 4000]),
    max_size=4,
)

_methods = st.sampled_from(
    ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "PROPFIND", "SUBSCRIBE"]
)
_path_characters = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#")


def _strange(paths: list[str], model: str) -> st.SearchStrategy[Attempt]:
    """Requests whose method, path, headers or body make no sense."""
    known = st.sampled_from([*paths, f"/v1/models/{model}", "/docs", "/openapi.json"])
    changed = st.builds(
        lambda path, end: path + end,
        known,
        st.sampled_from(["/", "//", "?", "?a=b&a", "%00", "%2e%2e/", "%ff", "/../x", ";x", "%F0%9F%82%A1", "a" * 3000]),
    )
    unknown = st.text(_path_characters, max_size=30).map(lambda text: f"/{text}")
    headers = st.builds(lambda kind, others: {**others, "Content-Type": kind}, _media_types, _headers)
    to_known = st.builds(Attempt, st.just("POST"), st.sampled_from(paths), _nonsense_bodies, st.just(_JSON) | headers)
    anywhere = st.builds(Attempt, _methods, known | changed | unknown, st.just(b"") | _nonsense_bodies, headers)
    return to_known | anywhere


def attempts(examples: Mapping[str, Examples], model: str) -> st.SearchStrategy[Attempt]:
    """All kinds of requests to endpoints of which `examples` has bodies, by path and name."""
    posts = st.one_of([_posts(path, bodies, model) for path, bodies in examples.items()])
    leaving = st.one_of([_dropped(path, bodies, model) for path, bodies in examples.items()])
    kinds = [posts, posts, posts, _strange(list(examples), model), leaving]
    return st.sampled_from(range(len(kinds))).flatmap(kinds.__getitem__)
