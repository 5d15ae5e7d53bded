"""What docs/api.md says of each field, as the schemas have it. `python -m tests.server.api_table` writes it there.

A field is supported, accepted (it changes nothing here), or refused, by name, but for values that ask for what happens
anyway. The remarks are the schemas' own descriptions.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from mtplx.server.schemas.chat import ChatBody
from mtplx.server.schemas.completion import CompletionBody
from mtplx.server.schemas.sampling import SamplingBody
from tests.server import openai_requests

Status: TypeAlias = Literal["supported", "accepted", "refused"]

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
BODIES: Mapping[str, type[SamplingBody]] = {"/v1/completions": CompletionBody, "/v1/chat/completions": ChatBody}

_ACCEPTED = "Accepted: "
_END = "<!-- end -->\n"
_HEAD = ["| field | status | remark |", "|---|---|---|"]


def status(path: str, field: str) -> Status:
    """Raises KeyError for a field that the endpoint does not know."""
    body = BODIES[path]
    if field in body.UNSUPPORTED:
        return "refused"
    description = body.model_fields[field].description or ""
    return "accepted" if description.startswith(_ACCEPTED) else "supported"


def tables(path: str) -> Iterator[list[str]]:
    """The lines of two tables: OpenAI's fields in its order, and those beyond."""
    theirs = openai_requests.fields(path)
    for fields in (theirs, [field for field in BODIES[path].model_fields if field not in theirs]):
        yield [*_HEAD, *(f"| `{field}` | {status(path, field)} | {_remark(path, field)} |" for field in fields)]


def filled_in(page: str) -> str:
    """The page with each table between the comments that mark its place."""
    for path in BODIES:
        for name, lines in zip(("openai", "more"), tables(path), strict=True):
            before, mark, rest = page.partition(f"<!-- {path} {name} -->\n")
            assert mark, f"docs/api.md has no place for {path} {name}"
            page = before + mark + "\n".join(lines) + "\n" + rest[rest.index(_END) :]
    return page


def _remark(path: str, field: str) -> str:
    body = BODIES[path]
    if field in body.UNSUPPORTED:
        harmless = [f"`{json.dumps(value)}`" for value in body.UNSUPPORTED[field]]
        return f"Not refused: {', '.join(harmless)}." if harmless else ""
    description = (body.model_fields[field].description or "").removeprefix(_ACCEPTED)
    return description[:1].upper() + description[1:]


if __name__ == "__main__":
    PAGE.write_text(filled_in(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
