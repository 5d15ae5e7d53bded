"""A conversation as one prompt: with tools, with variables for the template, or to continue its final message.

Knows no tokens. What turns messages into text, a template or a model's own code, is given.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.text.abilities import ChatAbilities, Tool
from mtplx.engine.text.tokenizer import ChatMessage
from mtplx.engine.text.tool_prompts import with_tools_in_words

# What requests say elsewhere, or may not say: some renderers take a template, or give no text, if told to.
_RESERVED = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "messages", "return_dict"}
    | {"tokenize", "tools"}
)
# Added to the content that is to be continued, to find its end in the prompt. The space tells whether the template
# strips contents.
_MARK = "\ue000END OF THE FINAL MESSAGE\ue001 "


class Renderer(Protocol):
    """Messages to text. Raises InvalidRequestError when it cannot have them. Variables may have any name."""

    def __call__(
        self,
        messages: Sequence[ChatMessage],
        /,
        *,
        tools: Sequence[Tool] | None,
        add_generation_prompt: bool,
        **variables: Any,
    ) -> str: ...


def render_chat(
    render: Renderer | None,
    abilities: ChatAbilities,
    messages: Sequence[ChatMessage],
    *,
    tools: Sequence[Tool],
    template_kwargs: Mapping[str, Any] | None,
    continue_final_message: bool,
    add_generation_prompt: bool,
) -> str:
    """What `Tokenizer.render_chat` promises, by this renderer."""
    if render is None:
        raise InvalidRequestError("the model has no chat template; send a prompt to be completed instead")
    variables = dict(template_kwargs or {})
    if reserved := sorted(variables.keys() & _RESERVED):
        message = f"{reserved[0]} is not for the template's variables to set; take it out"
        raise InvalidRequestError(message, field="chat_template_kwargs")
    variables.setdefault("enable_thinking", abilities.thinking is not None)  # as mlx-lm does
    if continue_final_message:
        _check_continues(messages)
    if not abilities.describes_tools:
        messages, tools = with_tools_in_words(messages, tools), ()
    if not continue_final_message:
        return render(messages, tools=list(tools) or None, add_generation_prompt=add_generation_prompt, **variables)
    content = messages[-1]["content"]
    marked = [*messages[:-1], {**messages[-1], "content": content + _MARK}]
    text = render(marked, tools=list(tools) or None, add_generation_prompt=False, **variables)
    return _up_to_mark(text, content)


def _check_continues(messages: Sequence[ChatMessage]) -> None:
    final: ChatMessage = messages[-1] if messages else {}
    if final.get("role") != "assistant" or final.get("tool_calls") or not isinstance(final.get("content"), str):
        raise InvalidRequestError(
            "only a message of the assistant with content and without tool calls can be continued; end messages with "
            "one, or leave continue_final_message out",
            field="continue_final_message",
        )


def _up_to_mark(text: str, content: str) -> str:
    """The text before the mark, as the transformers library cuts it."""
    end = text.rfind(_MARK.strip())
    if end < 0 or content.strip() not in text[:end]:
        raise InvalidRequestError(
            "the model's chat template doesn't show the final message as it is, so it cannot be continued",
            field="continue_final_message",
        )
    is_kept_whole = text.startswith(_MARK, end)
    return text[:end] if is_kept_whole else text[:end].rstrip()
