"""What GET /v1/models and GET /health reply: what is served, and how it is."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class ModelCard(BaseModel):
    """A model that is being served."""

    id: str = Field(description="What requests call it.")
    object: Literal["model"] = Field(description="What this is.")
    created: int = Field(description="When it was ready, in Unix seconds.")
    owned_by: str = Field(description="Who serves it.")
    root: str = Field(description="What it is, whatever it is called here.")
    max_model_len: int = Field(description="The most tokens of prompt and output together, as vLLM tells it.")


class ModelList(BaseModel):
    """All models that are being served, which is one."""

    object: Literal["list"] = Field(description="What this is.")
    data: list[ModelCard] = Field(description="The models.")


class HealthModel(BaseModel):
    """The model as the engine knows it."""

    id: str = Field(description="What requests call it.")
    architecture: str = Field(description="Its architecture, as its checkpoint names it.")
    quantization: str = Field(description="How its weights are stored.")
    max_model_len: int = Field(description="The most tokens of prompt and output together.")
    runs_by: Literal["rows", "sequential"] = Field(description="Whether requests share forwards, or take turns.")
    drafters: list[str] = Field(description="The drafters that requests may name.")


class Health(BaseModel):
    """How the server is."""

    status: str = Field(description="ok while requests are served.")
    reason: str | None = Field(description="Why the status is not ok.")
    model: HealthModel | None = Field(description="The model, once it is loaded.")
    kernels: dict[str, Any] | None = Field(description="Which kernels decode, once the model is loaded.")
    load: dict[str, Any] = Field(description="How many requests run and wait, and what they hold.")
    speculation: dict[str, Any] | None = Field(
        description="What the engine has learnt of speculation: milliseconds of a round by its rows and of a draft "
        "token by drafter, and the share of drafts that survive up to each position."
    )
    versions: dict[str, str] = Field(description="Version by package.")
