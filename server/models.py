"""GET /v1/models: what clients may ask for. It is one model, and only while it is being served."""

from typing import Annotated

import fastapi

from mtplx.server import openapi
from mtplx.server.admission import require_name
from mtplx.server.bridge import ServedModel
from mtplx.server.dependencies import Engine
from mtplx.server.paths import tidy
from mtplx.server.schemas.served import ModelCard, ModelList

router = fastapi.APIRouter()


@router.get("/v1/models", responses=openapi.replies(ModelList) | openapi.errors(401, 500, 503))
async def list_models(engine: Engine) -> dict[str, object]:
    """The served model, in a list."""
    return {"object": "list", "data": [_describe(engine.require_model())]}


@router.get("/v1/models/{name:path}", responses=openapi.replies(ModelCard) | openapi.errors(401, 404, 500, 503))
async def retrieve_model(
    name: Annotated[str, fastapi.Path(description="What requests call the model.")], engine: Engine
) -> dict[str, object]:
    """The served model, if that is its name. Names may hold slashes."""
    model = engine.require_model()
    if tidy(f"/{name}") != tidy(f"/{model.name}"):  # its slashes have been tidied on the way here
        require_name(name, model)
    return _describe(model)


def _describe(model: ServedModel) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "mtplx",
        "root": model.loaded.id,
        "max_model_len": model.loaded.context_length,
    }
