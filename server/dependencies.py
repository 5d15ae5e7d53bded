"""What a route may ask for beside its request."""

from typing import Annotated

from fastapi import Depends, Request

from mtplx.server.bridge import AsyncEngine


def _engine(request: Request) -> AsyncEngine:
    engine: AsyncEngine = request.app.state.engine
    return engine


Engine = Annotated[AsyncEngine, Depends(_engine)]
