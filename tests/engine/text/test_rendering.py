"""A conversation becomes one prompt: with tools, with variables for the template, or to be continued."""

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.models.default_model import default_model_path
from mtplx.engine.models.gguf_header import read_header
from mtplx.engine.models.gguf_vocabulary import read_vocabulary
from mtplx.engine.text.abilities import infer_abilities
from mtplx.engine.text.chat import ChatTemplate
from mtplx.engine.text.gguf_tokenizer import GgufTokenizer
from mtplx.engine.text.rendering import render_chat
from tests.tiny_models import CHAT_TEMPLATE

HI = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": "ü"}}}
KNOWS_TOOLS = (
    "{% for tool in tools or [] %}<{{ tool.function.name }}>{% endfor %}"
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}"
    "{% for tool_call in message.tool_calls or [] %}"
    "<tool_call>{{ tool_call.function.name }} {{ tool_call.function.arguments | tojson }}"
    "{% set tool_call = tool_call.function %}{{ tool_call.name }}</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def render(template: str, messages: list[dict[str, Any]], vocabulary: tuple[str, ...] = (), **options: Any) -> str:
    compiled = ChatTemplate(template, {"bos_token": "<s>"})
    abilities = infer_abilities(template, compiled.variables, vocabulary)
    asked = {
        "tools": (),
        "template_kwargs": None,
        "continue_final_message": False,
        "add_generation_prompt": True,
        **options,
    }
    return render_chat(compiled.render, abilities, messages, **asked)


def test_a_template_that_knows_tools_gets_them_and_calls_as_they_are() -> None:
    messages = [HI, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    assert render(KNOWS_TOOLS, messages, tools=[TOOL]) == (
        '<add>[user]Hi[assistant]<tool_call>add {"a": "ü"}add</tool_call>[assistant]'
    )


def test_for_a_template_without_tools_they_are_described_in_the_systems_message() -> None:
    alone = render(CHAT_TEMPLATE, [HI], tools=[TOOL])
    added = render(CHAT_TEMPLATE, [{"role": "system", "content": "Be brief."}, HI], tools=[TOOL])
    description = alone.removeprefix("<|im_start|>system\n").partition("<|im_end|>")[0]
    assert '<tools>\n{"type": "function", "function": {"name": "add", ' in description
    assert '<tool_call>\n{"name": ' in description
    assert added == alone.replace(description, f"Be brief.\n\n{description}")


def test_for_a_template_without_tools_calls_and_results_are_text() -> None:
    messages = [
        HI,
        {"role": "assistant", "content": "So:", "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "tool", "tool_call_id": "call_2", "content": "2"},
        {"role": "user", "content": "And?"},
    ]
    call = '<tool_call>\n{"name": "add", "arguments": {"a": "ü"}}\n</tool_call>'
    assert render(CHAT_TEMPLATE, messages) == (
        f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nSo:\n{call}\n{call}<|im_end|>\n<|im_start|>user\n"
        "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\nAnd?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_conversation_without_tools_is_left_alone() -> None:
    messages = [HI, HI, {"role": "assistant", "content": ""}]
    assert (
        render(CHAT_TEMPLATE, messages)
        == "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
        + "<|im_start|>assistant\n"
    )


def test_variables_reach_the_template() -> None:
    template = "{{ mood }} {{ bos_token }}"
    assert render(template, [HI], template_kwargs={"mood": "good"}) == "good <s>"
    assert render(template, [HI], template_kwargs={"mood": "good", "self": 1, "render": 2}) == "good <s>"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "chat_template", "tokenize"])
def test_what_the_request_says_elsewhere_is_no_variable(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name) as caught:
        render(CHAT_TEMPLATE, [HI], template_kwargs={name: []})
    assert caught.value.field == "chat_template_kwargs"


@pytest.mark.parametrize(("vocabulary", "thinks"), [(("<think>", "</think>"), "True"), ((), "False")])
def test_a_model_thinks_if_it_can_unless_told_otherwise(vocabulary: tuple[str, ...], thinks: str) -> None:
    template = "{{ enable_thinking }}"
    assert render(template, [HI], vocabulary) == thinks
    assert render(template, [HI], vocabulary, template_kwargs={"enable_thinking": False}) == "False"


def test_thoughts_reach_templates_by_either_name() -> None:
    message = {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    assert render("{{ messages[0].thinking }}{{ messages[0].reasoning_content }}", [message]) == "Hm.Hm."


def test_the_assistants_turn_need_not_be_begun() -> None:
    assert render(CHAT_TEMPLATE, [HI], add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


STRIPPING = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}"


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, STRIPPING, KNOWS_TOOLS])
@pytest.mark.parametrize("content", ["The sky", "The sky is \n", "Hi", " sky", ""])
def test_a_message_is_continued_as_transformers_does(template: str, content: str) -> None:
    messages = [HI, {"role": "assistant", "content": content}]
    expected, _ = render_jinja_template([messages], chat_template=template, continue_final_message=True)
    assert render(template, messages, continue_final_message=True) == expected[0]


@pytest.mark.parametrize(
    "message", [HI, {"role": "assistant", "content": "Hi", "tool_calls": [CALL]}, {"role": "assistant"}]
)
def test_only_an_assistants_text_can_be_continued(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="only a message of the assistant") as caught:
        render(CHAT_TEMPLATE, [HI, message], continue_final_message=True)
    assert caught.value.field == "continue_final_message"


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", "{{ messages[-1].content | upper }}"])
def test_what_the_template_does_not_show_as_it_is_cannot_be_continued(template: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be continued") as caught:
        render(template, [HI, {"role": "assistant", "content": "The sky"}], continue_final_message=True)
    assert caught.value.field == "continue_final_message"


@pytest.mark.slow
def test_the_default_model_is_told_of_tools_and_continues_messages() -> None:
    tokenizer = GgufTokenizer(read_vocabulary(read_header(default_model_path())))
    assert tokenizer.chat_abilities == infer_abilities(CHAT_TEMPLATE, (), ())
    told = tokenizer.render_chat([HI], tools=[TOOL])
    assert told.startswith("<|im_start|>system\nYou can call functions")
    assert told.endswith("<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    messages = [HI, {"role": "assistant", "content": "The sky is "}]
    assert tokenizer.render_chat(messages, continue_final_message=True).endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nThe sky is "
    )
