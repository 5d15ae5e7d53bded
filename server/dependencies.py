"""What a route may ask for beside its request."""

from typing import Annotated

from fastapi import Depends, Request

from mtplx.server.bridge import AsyncEngine


async def _engine(request: Request) -> AsyncEngine:
    """A coroutine, since FastAPI gives every plain function to a thread."""
    engine: AsyncEngine = request.app.state.engine
    return engine


Engine = Annotated[AsyncEngine, Depends(_engine)]
