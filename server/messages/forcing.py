"""A grammar of outputs that are calls of tools, for requests that leave the model no choice, or none but an answer in a
format.

Knows how calls are spelled where they are JSON. Calls in other styles cannot be forced.
"""

import json
from collections.abc import Mapping
from typing import Any

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.grammar.spec import JSON_WHITESPACE, GrammarSpec
from mtplx.engine.text.abilities import ChatAbilities, ThinkingMarkers, ToolStyle
from mtplx.server.closed_schemas import closed
from mtplx.server.schemas.tool_choice import ToolUse

MOST_FORCED_CALLS = 16  # a model that is forced to call may know no end

# JSON as Python spells it, and so do the chat templates in which models have seen calls.
_SPELLING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def forced_calls(
    abilities: ChatAbilities, use: ToolUse, *, is_thinking: bool, answer: GrammarSpec | None = None
) -> GrammarSpec | None:
    """The grammar that makes the output one or more calls, with arguments by the tool's schema, or, where none must be,
    the JSON of `answer`; None where that leaves the model free.

    A model that thinks may do so before. `is_thinking` says that the prompt has opened its thoughts already.
    Raises InvalidRequestError if the model writes calls in a style that cannot be forced.
    """
    if not use.must_call and (answer is None or not use.offered):
        return None
    if not abilities.tools.is_json:
        raise InvalidRequestError(
            f"this model writes calls of tools in the style {abilities.tools.name}, which cannot be forced; use the "
            'tool_choice "auto" without a format, or "none" with one',
            field="tool_choice",
        )
    most = MOST_FORCED_CALLS if use.most_calls is None else use.most_calls
    further = f' ("\\n" call){{0,{most - 1}}}' if most > 1 else ""
    calls = [_call(tool["function"], abilities.tools) for tool in use.offered]
    rules = [f"call_{index}: {call}" for index, call in enumerate(calls)]
    answers = [] if use.must_call or answer is None else [f"answer: %json {_answer_schema(answer)}"]
    choices = "calls | answer" if answers else "calls"
    lines = [
        f"start: {_thoughts_if_any(abilities.thinking, is_thinking=is_thinking)}({choices})",
        f"calls: call{further}",
        f"call: {' | '.join(f'call_{index}' for index in range(len(calls)))}",
        *rules,
        *answers,
        *_thinking_rules(abilities.thinking),
    ]
    return GrammarSpec("tool_calls", "\n".join(lines), field="tools")


def _call(function: Mapping[str, Any], style: ToolStyle) -> str:
    head = f'{style.start}\n{{"name": {json.dumps(function["name"])}, "arguments": '
    schema = json.dumps({**closed(function["parameters"]), "x-guidance": _SPELLING}, ensure_ascii=False)
    return f"{_literal(head)} %json {schema} {_literal('}' + chr(10) + style.end)}"


def _answer_schema(answer: GrammarSpec) -> str:
    if answer.kind not in ("json_object", "json_schema"):
        raise InvalidRequestError(
            'only JSON can be kept to by an output that may call tools; let tool_choice be "none" or "required"',
            field=answer.field,
        )
    schema = json.loads(str(answer.value)) if answer.value else {"type": "object"}
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": JSON_WHITESPACE}}, ensure_ascii=False)


def _thoughts_if_any(thinking: ThinkingMarkers | None, *, is_thinking: bool) -> str:
    if thinking is None:
        return ""
    return "thoughts " if is_thinking else f"({_literal(thinking.start)} thoughts)? "


def _thinking_rules(thinking: ThinkingMarkers | None) -> list[str]:
    if thinking is None:
        return []
    return ["thoughts: until_end blank", f"until_end[suffix={_literal(thinking.end)}]: /(.|\\n)*/", "blank: /\\n{0,2}/"]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
