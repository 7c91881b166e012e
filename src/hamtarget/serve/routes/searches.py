"""Endpoints that search."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.serve.messages.answer_bodies import AnswerBody, batch_body, match_body, search_body
from hamtarget.serve.messages.match_messages import MatchAnswer, MatchRequest
from hamtarget.serve.messages.openapi import ERRORS, json_body, query_body
from hamtarget.serve.messages.request_bodies import read_json, read_query
from hamtarget.serve.messages.search_messages import (
    BatchAnswer,
    BatchNearestRequest,
    BatchProbeRequest,
    BatchSearchRequest,
    ManyQueries,
    NearestRequest,
    OneQuery,
    ProbeRequest,
    SearchAnswer,
    SearchRequest,
)
from hamtarget.serve.service import Service


def search_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/search, /v1/nearest, /v1/probe and /v1/match."""
    router = APIRouter(prefix="/v1", tags=["search"], responses=ERRORS)

    @router.post("/search", response_model=SearchAnswer, openapi_extra=query_body(SearchRequest))
    async def search(request: Request) -> Response:
        """Find everything within `radius` bits of a code, vector, image or stored item, nearest first."""
        return await _one(service, request, SearchRequest)

    @router.post("/nearest", response_model=SearchAnswer, openapi_extra=query_body(NearestRequest))
    async def nearest(request: Request) -> Response:
        """Find the `k` nearest items of a code, vector, image or stored item, exactly; or vectors, at a recall."""
        return await _one(service, request, NearestRequest)

    @router.post("/probe", response_model=SearchAnswer, openapi_extra=query_body(ProbeRequest))
    async def probe(request: Request) -> Response:
        """Find items near a vector, image or stored item approximately: read `budget` rows, the likeliest first."""
        return await _one(service, request, ProbeRequest)

    @router.post("/match", response_model=MatchAnswer, openapi_extra=json_body(MatchRequest))
    async def match(request: Request) -> Response:
        """Find the items that match several codes of one query, such as frames of a video: k of n of its codes."""
        asker = service.asker(request)
        asked = await read_json(request, MatchRequest, asker)
        matched = await service.match(asked, asker)
        n_pairs = sum(len(match.pairs) for match in matched.matches)
        return AnswerBody(await service.written(asker, partial(match_body, asked, matched), n_pairs))

    @router.post("/search/batch", response_model=BatchAnswer, openapi_extra=json_body(BatchSearchRequest))
    async def search_batch(request: Request) -> Response:
        """Find everything within `radius` bits of each of many codes or vectors, as arrays."""
        return await _many(service, request, BatchSearchRequest)

    @router.post("/nearest/batch", response_model=BatchAnswer, openapi_extra=json_body(BatchNearestRequest))
    async def nearest_batch(request: Request) -> Response:
        """Find the `k` nearest items of each of many codes or vectors, as arrays."""
        return await _many(service, request, BatchNearestRequest)

    @router.post("/probe/batch", response_model=BatchAnswer, openapi_extra=json_body(BatchProbeRequest))
    async def probe_batch(request: Request) -> Response:
        """Find items near each of many vectors approximately, as arrays: read `budget` rows for each."""
        return await _many(service, request, BatchProbeRequest)

    return router


async def _one(service: Service, request: Request, model: type[OneQuery]) -> Response:
    """Answer a search for one query."""
    asker = service.asker(request)
    asked = await read_query(request, model, asker)
    found = await service.search(asked, asker)
    n_hits = len(found.hits.rows)
    return AnswerBody(await service.written(asker, partial(search_body, asked, found), n_hits))


async def _many(service: Service, request: Request, model: type[ManyQueries]) -> Response:
    """Answer a search for many queries."""
    asker = service.asker(request)
    asked = await read_json(request, model, asker)
    found = await service.search_batch(asked, asker)
    packed = asked.arrays == "base64"
    # Numbers in base64 are written in no time.
    n_hits = 0 if packed else len(found.hits.rows)
    return AnswerBody(await service.written(asker, partial(batch_body, found, packed=packed), n_hits))
