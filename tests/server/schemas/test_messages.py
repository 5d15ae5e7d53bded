"""Messages as OpenAI has them, and what chat templates are told of them. For refusals see test_bad_requests.py."""

from typing import Any

import pytest

from mtplx.server.schemas.messages import Message

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALL_OF_TEMPLATES = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be brief."}),
        (
            {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "name": "Ann", "content": "a\nb"},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "assistant", "content": "", "tool_calls": [CALL_OF_TEMPLATES]},
        ),
        (
            {"role": "assistant", "content": "Hm.", "reasoning_content": "So.", "tool_calls": []},
            {"role": "assistant", "content": "Hm.", "reasoning_content": "So."},
        ),
        ({"role": "assistant", "refusal": "No."}, {"role": "assistant", "content": "No."}),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "assistant", "content": "No."},
        ),
        (
            {"role": "tool", "tool_call_id": "call_1", "content": "2"},
            {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        ),
        ({"role": "function", "name": "add", "content": "2"}, {"role": "tool", "name": "add", "content": "2"}),
        (
            {"role": "assistant", "function_call": {"name": "add", "arguments": ""}},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "add", "type": "function", "function": {"name": "add", "arguments": {}}}],
            },
        ),
    ],
)
def test_templates_know_a_message_so(message: dict[str, Any], told: dict[str, Any]) -> None:
    assert Message.model_validate(message).for_template() == told


def test_a_reply_can_be_given_back_with_all_its_fields() -> None:
    empty = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    message = Message.model_validate({"role": "assistant", "content": "Hi", **empty})
    assert message.for_template() == {"role": "assistant", "content": "Hi"}
