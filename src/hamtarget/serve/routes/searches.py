"""Endpoints that search."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.serve.routes import schemas
from hamtarget.serve.routes.documents import ERRORS, json_body, query_body
from hamtarget.serve.routes.reading import read_json, read_query, to_json
from hamtarget.serve.service import Service, packed_array
from hamtarget.serve.work import SearchJob, SearchOutcome

_JSON = "application/json"


def search_routes(service: Service) -> APIRouter:
    """Routes of /v1/search and /v1/nearest."""
    router = APIRouter(prefix="/v1", tags=["search"], responses=ERRORS)

    async def answer(request: Request, model: type[schemas.SearchRequest] | type[schemas.NearestRequest]) -> Response:
        asked, image = await read_query(request, model)
        outcome, job, ms = await service.search(asked, image)
        return Response(to_json(_answer(asked, outcome, job, ms)), media_type=_JSON)

    async def answer_batch(
        request: Request, model: type[schemas.BatchSearchRequest] | type[schemas.BatchNearestRequest]
    ) -> Response:
        asked = await read_json(request, model)
        outcome = await service.search_batch(asked)
        return Response(_batch_answer(outcome, packed=asked.arrays == "base64"), media_type=_JSON)

    @router.post("/search", response_model=schemas.SearchAnswer, openapi_extra=query_body(schemas.SearchRequest))
    async def search(request: Request) -> Response:
        """Everything within `radius` bits of a code, vector, image or stored item, nearest first."""
        return await answer(request, schemas.SearchRequest)

    @router.post("/nearest", response_model=schemas.SearchAnswer, openapi_extra=query_body(schemas.NearestRequest))
    async def nearest(request: Request) -> Response:
        """The `k` nearest items of a code, vector, image or stored item, exactly."""
        return await answer(request, schemas.NearestRequest)

    @router.post(
        "/search/batch", response_model=schemas.BatchAnswer, openapi_extra=json_body(schemas.BatchSearchRequest)
    )
    async def search_batch(request: Request) -> Response:
        """Everything within `radius` bits of each of many codes or vectors, as arrays."""
        return await answer_batch(request, schemas.BatchSearchRequest)

    @router.post(
        "/nearest/batch", response_model=schemas.BatchAnswer, openapi_extra=json_body(schemas.BatchNearestRequest)
    )
    async def nearest_batch(request: Request) -> Response:
        """The `k` nearest items of each of many codes or vectors, as arrays."""
        return await answer_batch(request, schemas.BatchNearestRequest)

    return router


def _answer(
    asked: schemas.SearchRequest | schemas.NearestRequest, outcome: SearchOutcome, job: SearchJob, encode_ms: float
) -> dict[str, Any]:
    hits = []
    for place, hit in enumerate(outcome.hits[0]):
        shown: dict[str, Any] = {"id": hit.id, "distance": hit.distance}
        if hit.embedding_distance is not None:
            shown["embedding_distance"] = hit.embedding_distance
        item = outcome.items[place] if outcome.items else None
        if asked.codes and item is not None:
            shown["code"] = np.asarray(item.code, dtype=np.uint8).tobytes().hex()
        if asked.payload:
            shown["payload"] = None if item is None else item.payload
        hits.append(shown)
    answer: dict[str, Any] = {
        "code": job.codes.tobytes().hex(),
        "embedding": None if job.embeddings is None else job.embeddings[0].tolist(),
        "radius": job.look.radius,
        "hits": hits,
        "truncated": job.look.radius is not None and len(hits) == job.look.limit,
        "buckets": outcome.buckets,
        "candidates": outcome.candidates,
        "comparisons": outcome.comparisons,
        "took": {"encode_ms": round(encode_ms, 4), "index_ms": round(outcome.ms, 4)},
    }
    if outcome.histogram is not None:
        counts, is_whole = outcome.histogram
        answer["histogram"] = {"counts": counts.tolist(), "rows": int(counts.sum()), "sampled": not is_whole}
    return answer


def _batch_answer(outcome: SearchOutcome, *, packed: bool) -> bytes:
    hits = outcome.hits
    rest = {
        "candidates": outcome.candidates,
        "comparisons": outcome.comparisons,
        "index_ms": round(outcome.ms, 4),
    }
    if not packed:
        arrays = {"offsets": hits.offsets, "ids": hits.ids, "distances": hits.distances}
        return to_json({**{name: array.tolist() for name, array in arrays.items()}, **rest})
    # Base64 needs no quoting: put together by hand, a large answer is not looked through once more.
    parts = [
        b'"%s":"%s",' % (name, packed_array(array, kind))
        for name, array, kind in (
            (b"offsets", hits.offsets, "<i8"),
            (b"ids", hits.ids, "<i8"),
            (b"distances", hits.distances, "<u2"),
        )
    ]
    return b"{" + b"".join(parts) + to_json(rest)[1:]
