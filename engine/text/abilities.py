"""What a model's chat template and vocabulary say about tools and thinking, found out as mlx-lm does.

Knows the families of tool calls that mlx-lm can read, and which special tokens they are written with. Reads no text.
"""

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

Tool: TypeAlias = Mapping[str, Any]  # as OpenAI has it: {"type": "function", "function": {"name": …, …}}

_JSON = "json_tools"

# Special tokens that stand within the calls of a family, or of which its markers consist. Decoding must keep them.
_TOKENS_OF_CALLS: Mapping[str, tuple[str, ...]] = {
    "function_gemma": ("<escape>",),
    "gemma4": ('<|"|>',),
    "kimi_k2": ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    "kimi_k3": ("<|open|>", "<|close|>", "<|sep|>"),
    "mistral": ("[ARGS]",),
}
# Markers of thinking that are more than one token; the others are tokens themselves.
_TOKENS_OF_THINKING = ("<|channel>", "<channel|>", "<|open|>", "<|close|>", "<|sep|>")


@dataclass(frozen=True)
class ToolStyle:
    """How a model writes the calls of tools: between `start` and `end`; an empty `end` is that of the text.

    `parse` takes what is between and the tools, and gives {"name", "arguments", maybe "id"}, or a list of them; it
    raises anything where that is no call. It is mlx-lm's parser of that name.
    """

    name: str
    start: str
    end: str
    parse: Callable[[str, Sequence[Tool]], Any]

    @property
    def is_json(self) -> bool:
        """Whether a call is spelled {"name": …, "arguments": {…}}."""
        return self.name == _JSON


@dataclass(frozen=True)
class ThinkingMarkers:
    start: str
    end: str


@dataclass(frozen=True)
class ChatAbilities:
    """What a chat with this model can have, and how it is marked in the text.

    If the template knows no tools (`describes_tools`), they are described to the model in words of our own, and it is
    asked to write calls in `tools`' style all the same. `fillers` are markers that enclose the answer and say nothing.
    `visible_tokens` are the special tokens that markers and calls are made of, so that a decoded text must have them.
    """

    describes_tools: bool
    tools: ToolStyle
    thinking: ThinkingMarkers | None = None
    fillers: tuple[str, ...] = ()
    visible_tokens: frozenset[str] = frozenset()

    def begins_thinking(self, prompt: str, *, continued: str = "") -> bool:
        """Whether the rendered prompt ends within a block of thinking, which the output goes on with. `continued` is
        the content of the assistant's message that the prompt ends with, if there is one to be continued."""
        if self.thinking is None:
            return False
        is_open = continued.rfind(self.thinking.start) > continued.rfind(self.thinking.end)
        return is_open or prompt.rstrip().endswith(self.thinking.start)


def infer_abilities(
    template: str | None,
    variables: Collection[str],
    vocabulary: Collection[str],
    *,
    family: str | None = None,
) -> ChatAbilities:
    """The abilities of a model with this chat template, which uses these variables, and these tokens.

    `family` is that of the tool calls, if the model's own files name it.
    """
    # Here, for it takes a second or more, and the server is to answer before.
    from mlx_lm.tokenizer_utils import _infer_structural_markers, _infer_thinking, _infer_tool_parser

    described = SimpleNamespace(
        chat_template=template, get_vocab=lambda: dict.fromkeys(vocabulary, 0), encode=lambda *_, **__: ()
    )
    family = family or _infer_tool_parser(described) or (_JSON if "<tool_call>" in (template or "") else None)
    describes_tools = family is not None and "tools" in variables
    tools = _tool_style(family if describes_tools and family else _JSON)
    start, end, *_ = _infer_thinking(described)
    tokens = {tools.start, tools.end, start, end, *_TOKENS_OF_CALLS.get(tools.name, ()), *_TOKENS_OF_THINKING}
    return ChatAbilities(
        describes_tools=describes_tools,
        tools=tools,
        thinking=None if start is None or end is None else ThinkingMarkers(start, end),
        fillers=tuple(_infer_structural_markers(described)),
        visible_tokens=frozenset(tokens & set(vocabulary)),
    )


def _tool_style(family: str) -> ToolStyle:
    parser = importlib.import_module(f"mlx_lm.tool_parsers.{family}")
    return ToolStyle(family, parser.tool_call_start, parser.tool_call_end, parser.parse_tool_call)
