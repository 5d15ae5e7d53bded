"""What POST /tokenize and POST /detokenize take and reply, and GET /tokenizer_info replies, as vLLM has them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, FailFast, Field, model_validator

from mtplx.server.schemas.fields import Body, Natural, invalid
from mtplx.server.schemas.messages import Message
from mtplx.server.schemas.tools import Tool, Tools

_FOR_MESSAGES = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools")


class TokenizeBody(Body):
    """Either a prompt or the messages of a chat. None stands for the default."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "chat_template": (),
        "media_io_kwargs": (),
        "mm_processor_kwargs": (),
    }

    model: str | None = Field(None, description="The model's name; the one that is served if not given.")
    prompt: str | None = Field(None, description="The text to tokenize.")
    messages: Annotated[list[Message] | None, FailFast()] = Field(
        None, min_length=1, description="The chat whose prompt to tokenize."
    )
    add_special_tokens: bool | None = Field(
        None,
        description="Whether the tokenizer adds tokens of its own, such as one for the beginning. It does for a prompt "
        "if not given, and does not for messages, since a template names them itself.",
    )
    add_generation_prompt: bool | None = Field(
        None, description="Whether the assistant's next turn is begun; it is, if not given, unless a message goes on."
    )
    continue_final_message: bool | None = Field(
        None, description="Whether the final message, which is the assistant's, is left open, to be continued."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Variables of the chat template.")
    tools: Annotated[Tools, BeforeValidator(lambda value: value or [], json_schema_input_type=list[Tool] | None)] = (
        Field(default_factory=list, description="The tools that the chat may use, which its prompt tells of.")
    )
    return_token_strs: bool | None = Field(None, description="Whether to reply with the tokens' spellings as well.")

    @model_validator(mode="after")
    def _has_one_text(self) -> Self:
        if self.prompt is None and self.messages is None:
            raise invalid("is missing; give a prompt, or messages", "missing_required_parameter", at=".prompt")
        if self.prompt is not None and self.messages is not None:
            raise invalid("is not allowed beside prompt; give one of them", at=".messages")
        for name in _FOR_MESSAGES:
            if self.messages is None and getattr(self, name) not in (None, []):
                raise invalid("is allowed only with messages", at=f".{name}")
        if self.add_generation_prompt and self.continue_final_message:
            raise invalid("is not allowed beside continue_final_message", at=".add_generation_prompt")
        return self


class DetokenizeBody(Body):
    model: str | None = Field(None, description="The model's name; the one that is served if not given.")
    tokens: Annotated[list[Natural], FailFast()] = Field(description="The token ids.")


class TokenizeReply(BaseModel):
    """`token_strs` are the tokens as model files spell them, if the request asked for them."""

    count: int = Field(description="How many tokens there are.")
    max_model_len: int = Field(description="The most tokens of prompt and output together.")
    tokens: list[int] = Field(description="The token ids.")
    token_strs: list[str] | None = Field(description="The tokens as model files spell them.")


class DetokenizeReply(BaseModel):
    prompt: str = Field(description="The text.")


class TokenizerInfo(BaseModel):
    """How the model's files spell the special tokens that clients ask for; null where there is none."""

    bos_token: str | None = Field(description="Begins a text.")
    eos_token: str | None = Field(description="Ends a text or a turn.")
    pad_token: str | None = Field(description="Fills a text up.")
    unk_token: str | None = Field(description="Stands for what the vocabulary lacks.")
