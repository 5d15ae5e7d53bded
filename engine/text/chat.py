"""A conversation as one prompt, by the model's own template.

Templates are foreign code: they run in a sandbox, set up as the transformers library does, for which they are written.
Knows no tokens but the texts of those a template may name.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mtplx.engine.errors import InvalidRequestError, ModelLoadError
from mtplx.engine.text.tokenizer import ChatMessage


class ChatTemplate:
    """A compiled template; `special_tokens` are what it may call bos_token, eos_token and the like.

    Raises ModelLoadError when the template isn't valid Jinja.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _format_now}
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelLoadError(f"the model's chat template is broken at line {error.lineno}: {error}") from error

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt for the assistant's next turn. Raises InvalidRequestError when the template rejects them."""
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidRequestError(
                f"the model's chat template rejects these messages: {error}", field="messages"
            ) from error


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here its content simply counts."""

    tags = {"generation"}  # noqa: RUF012 - the type jinja2 declares

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, **options: Any) -> str:
    # Jinja's own filter would escape HTML characters.
    return json.dumps(value, ensure_ascii=False, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _format_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
