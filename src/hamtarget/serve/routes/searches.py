"""Endpoints that search."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.serve import messages
from hamtarget.serve.answers import batch_response, search_response
from hamtarget.serve.bodies import read_json, read_query
from hamtarget.serve.openapi import ERRORS, json_body, query_body
from hamtarget.serve.service import Service


def search_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/search, /v1/nearest and /v1/probe."""
    router = APIRouter(prefix="/v1", tags=["search"], responses=ERRORS)

    @router.post("/search", response_model=messages.SearchAnswer, openapi_extra=query_body(messages.SearchRequest))
    async def search(request: Request) -> Response:
        """Find everything within `radius` bits of a code, vector, image or stored item, nearest first."""
        asked = await read_query(request, messages.SearchRequest)
        return search_response(asked, await service.search(asked))

    @router.post("/nearest", response_model=messages.SearchAnswer, openapi_extra=query_body(messages.NearestRequest))
    async def nearest(request: Request) -> Response:
        """Find the `k` nearest items of a code, vector, image or stored item, exactly."""
        asked = await read_query(request, messages.NearestRequest)
        return search_response(asked, await service.search(asked))

    @router.post("/probe", response_model=messages.SearchAnswer, openapi_extra=query_body(messages.ProbeRequest))
    async def probe(request: Request) -> Response:
        """Find items near a vector, image or stored item approximately: read `budget` rows, the likeliest first."""
        asked = await read_query(request, messages.ProbeRequest)
        return search_response(asked, await service.search(asked))

    @router.post(
        "/search/batch", response_model=messages.BatchAnswer, openapi_extra=json_body(messages.BatchSearchRequest)
    )
    async def search_batch(request: Request) -> Response:
        """Find everything within `radius` bits of each of many codes or vectors, as arrays."""
        asked = await read_json(request, messages.BatchSearchRequest)
        return batch_response(await service.search_batch(asked), packed=asked.arrays == "base64")

    @router.post(
        "/nearest/batch", response_model=messages.BatchAnswer, openapi_extra=json_body(messages.BatchNearestRequest)
    )
    async def nearest_batch(request: Request) -> Response:
        """Find the `k` nearest items of each of many codes or vectors, as arrays."""
        asked = await read_json(request, messages.BatchNearestRequest)
        return batch_response(await service.search_batch(asked), packed=asked.arrays == "base64")

    @router.post(
        "/probe/batch", response_model=messages.BatchAnswer, openapi_extra=json_body(messages.BatchProbeRequest)
    )
    async def probe_batch(request: Request) -> Response:
        """Find items near each of many vectors approximately, as arrays: read `budget` rows for each."""
        asked = await read_json(request, messages.BatchProbeRequest)
        return batch_response(await service.search_batch(asked), packed=asked.arrays == "base64")

    return router
