"""Chat templates are rendered as the transformers library does, in a sandbox."""

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from mtplx.engine.errors import InvalidRequestError, ModelLoadError
from mtplx.engine.text.chat import ChatTemplate
from tests.tiny_models import CHAT_TEMPLATE

MESSAGES = [{"role": "user", "content": 'Is 2 < 3 & "so"? 你好'}, {"role": "assistant", "content": "Yes."}]


@pytest.mark.parametrize(
    "template",
    [
        CHAT_TEMPLATE,
        "{{ bos_token }}{% for message in messages %}\n    {% if loop.first %}\nFirst: {% endif %}\n"
        "{{ message['content'] }}\n{% endfor %}",
        "{% for message in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ message | tojson }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{{ messages | tojson(indent=2) }}{{ tools is none }} {{ tools is defined }}",
        "{{ strftime_now('%Y') }}",
    ],
)
def test_rendering_equals_that_of_transformers(template: str) -> None:
    expected, _ = render_jinja_template([MESSAGES], chat_template=template, add_generation_prompt=True, bos_token="<s>")
    assert ChatTemplate(template, {"bos_token": "<s>"}).render(MESSAGES) == expected[0]


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content.upper() }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_that_fails_means_the_messages_are_wrong(template: str) -> None:
    with pytest.raises(InvalidRequestError, match="chat template rejects these messages") as caught:
        ChatTemplate(template, {}).render(MESSAGES)
    assert caught.value.field == "messages"


def test_the_words_of_the_template_reach_the_client() -> None:
    with pytest.raises(InvalidRequestError, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}", {}).render(MESSAGES)


def test_a_broken_template_fails_when_the_model_is_loaded() -> None:
    with pytest.raises(ModelLoadError, match="chat template is broken at line 2"):
        ChatTemplate("fine\n{% for %}", {})
