"""The endpoint of the map."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.serve.code_map import MAX_POINTS
from hamtarget.serve.messages.answer_bodies import AnswerBody
from hamtarget.serve.messages.openapi import ERRORS
from hamtarget.serve.messages.store_messages import MapAnswer
from hamtarget.serve.service import Service


def map_routes(service: Service) -> APIRouter:
    """Return the route of /v1/map."""
    router = APIRouter(prefix="/v1", tags=["status"], responses=ERRORS)

    @router.get("/map", response_model=MapAnswer)
    async def draw(request: Request, n: Annotated[int, Query(ge=1, le=MAX_POINTS)] = 2000) -> Response:
        """Get `n` items, drawn at random, as points of a plane: the two principal components of their codes."""
        return AnswerBody(await service.map(n, service.asker(request)))

    return router
