"""GET /v1/models: what clients may ask for. It is one model, and only while it is being served."""

import fastapi

from mtplx.server.admission import require_name
from mtplx.server.bridge import ServedModel
from mtplx.server.dependencies import Engine

router = fastapi.APIRouter()


@router.get("/v1/models")
async def list_models(engine: Engine) -> dict[str, object]:
    """The served model, in a list."""
    return {"object": "list", "data": [_describe(engine.require_model())]}


@router.get("/v1/models/{name:path}")
async def retrieve_model(name: str, engine: Engine) -> dict[str, object]:
    """The served model, if that is its name. Names may hold slashes."""
    model = engine.require_model()
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
