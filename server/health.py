"""GET /health and GET /metrics: how the server is, for people and for machines."""

from dataclasses import asdict
from http import HTTPStatus

import fastapi
from fastapi.responses import JSONResponse, PlainTextResponse

from mtplx.engine.types import SpeculationReport
from mtplx.server import openapi
from mtplx.server.dependencies import Engine
from mtplx.server.metrics import Metrics
from mtplx.server.schemas.served import Health
from mtplx.server.versions import versions

router = fastapi.APIRouter()


@router.get(
    "/health",
    responses=openapi.replies(Health) | openapi.replies(Health, status=503) | openapi.errors(500),
)
async def health(engine: Engine) -> JSONResponse:
    """Status 200 while requests are served, else 503 with the reason."""
    status, model = engine.status, engine.known_model
    content = {
        "status": status.state,
        "reason": status.reason,
        "model": model
        and {
            "id": model.name,
            "architecture": model.loaded.architecture,
            "quantization": model.loaded.quantization,
            "max_model_len": model.loaded.context_length,
            "runs_by": model.way,
            "drafters": model.limits.drafters,
        },
        "kernels": model and asdict(model.kernels),
        "load": asdict(status.load),
        "speculation": engine.speculation and _speculation(engine.speculation),
        "versions": versions(),
    }
    return JSONResponse(content, HTTPStatus.OK if status.state == "ok" else HTTPStatus.SERVICE_UNAVAILABLE)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=openapi.errors(401, 500),
)
async def metrics(engine: Engine) -> fastapi.Response:
    """Prometheus metrics. There are none before the model is loaded."""
    if engine.metrics is None:
        return fastapi.Response(media_type=Metrics.CONTENT_TYPE)
    return fastapi.Response(engine.metrics.render(), media_type=Metrics.CONTENT_TYPE)


def _speculation(report: SpeculationReport) -> dict[str, object]:
    """What a round takes by its number of rows and a draft token by drafter, and how far drafts survive."""
    return {
        "verify_ms": {str(rows): round(1e3 * seconds, 3) for rows, seconds in report.verify_s.items()},
        "draft_ms": {drafter: round(1e3 * seconds, 3) for drafter, seconds in report.draft_s.items()},
        "survival": {
            drafter: [round(share, 3) for share in shares] for drafter, shares in report.survival.items() if shares
        },
    }
