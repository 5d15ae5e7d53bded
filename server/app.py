"""The application: routes, limits, error bodies, and an engine that lives as long as it does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import mtplx
from mtplx.configs.settings import Settings
from mtplx.server import chat, completions, docs, errors, health, models, openapi, tokenizing
from mtplx.server.body_limit import BodyLimit
from mtplx.server.bridge import AsyncEngine, LoadEngine


def create_app(settings: Settings, load_engine: LoadEngine) -> FastAPI:
    """The server's ASGI application. Its engine, `app.state.engine`, starts and stops with the application.

    `load_engine` is called once, on the engine's thread. While it runs, and if it fails, the application answers all
    the same: completions with 503, /health with what is going on.
    """
    engine = AsyncEngine(settings, load_engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()
        await engine.join()

    # The page that FastAPI has for /docs is blank without internet.
    app = FastAPI(title="mtplx", version=mtplx.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.engine = engine
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    errors.install(app)
    openapi.install(app)
    for module in (completions, chat, tokenizing, models, health, docs):
        app.include_router(module.router)
    return app
