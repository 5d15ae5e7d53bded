"""A model's chat template, ready to be rendered.

Templates are foreign code: they run in a sandbox, set up as the transformers library does, for which they are written.
Knows no tokens but the texts of those a template may name.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mtplx.engine.errors import InvalidRequestError, ModelLoadError
from mtplx.engine.text.abilities import Tool
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
            self.variables = frozenset(meta.find_undeclared_variables(environment.parse(source)))
        except TemplateSyntaxError as error:
            raise ModelLoadError(f"the model's chat template is broken at line {error.lineno}: {error}") from error

    def render(
        self,
        messages: Sequence[ChatMessage],
        /,
        *,
        tools: Sequence[Tool] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt for the assistant's next turn. Raises InvalidRequestError when the template rejects them."""
        try:
            return self._template.render(
                {
                    "documents": None,
                    **self._special_tokens,
                    **variables,
                    "messages": [_with_thinking(message) for message in messages],
                    "tools": tools,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise InvalidRequestError(
                f"the model's chat template rejects these messages: {error}", field="messages"
            ) from error


def _with_thinking(message: ChatMessage) -> dict[str, Any]:
    """Some templates call the reasoning so."""
    reasoning = message.get("reasoning_content")
    return dict(message) if reasoning is None else {"thinking": reasoning, **message}


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
