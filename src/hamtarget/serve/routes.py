"""Endpoints of the service: searches, items, groups, its state, the map, and the pages."""

from __future__ import annotations

import asyncio
import importlib.resources
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import hamtarget
from hamtarget.items import Id
from hamtarget.serve.access.request_facts import facts_of
from hamtarget.serve.access.roles import allows
from hamtarget.serve.code_map import MAX_POINTS
from hamtarget.serve.instruments.gauges import Instruments
from hamtarget.serve.instruments.machine import resident_bytes
from hamtarget.serve.instruments.readiness import Readiness
from hamtarget.serve.messages.answer_bodies import (
    AnswerBody,
    batch_body,
    groups_body,
    item_body,
    json_response,
    match_body,
    members_body,
    search_body,
)
from hamtarget.serve.messages.group_messages import GroupMembersAnswer, GroupMembersRequest, GroupsAnswer, GroupsRequest
from hamtarget.serve.messages.item_messages import DeleteAnswer, ItemOut, PutAnswer, PutRequest
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
from hamtarget.serve.messages.store_messages import MapAnswer, StatsAnswer
from hamtarget.serve.pictures import MAX_SIDE
from hamtarget.serve.problems import Problem, not_found, not_ready
from hamtarget.serve.service import Service

_ID = Annotated[str, Path(description="The id, percent-encoded; a slash is %2F.")]
_KIND = Annotated[Literal["string", "integer"], Query(description='The type of the id; 1 and "1" are two ids.')]
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The browser asks again each time, so that an updated package shows its new page.
_FRESH = {"Cache-Control": "no-cache"}


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


def item_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/items."""
    router = APIRouter(prefix="/v1", tags=["items"], responses=ERRORS)

    @router.put("/items", response_model=PutAnswer, openapi_extra=json_body(PutRequest))
    async def put(request: Request) -> Response:
        """Keep items, in place of those with the same ids: all or none; they are on disk when this is answered."""
        asker = service.asker(request)
        asked = await read_json(request, PutRequest, asker)
        return json_response({"items": await service.put(asked.items, asker)})

    @router.get("/items/{id}", response_model=ItemOut)
    async def get(request: Request, id: _ID, kind: _KIND = "string") -> Response:
        """Get an item: its code, embedding and payload."""
        asker = service.asker(request)
        wanted = _id(id, kind)
        item = await service.item(wanted, asker)
        write = partial(item_body, wanted, item, has_image=service.has_image(item), pictures=service.work.pictures)
        return AnswerBody(await service.written(asker, write, 1))

    @router.delete("/items/{id}", response_model=DeleteAnswer)
    async def delete(request: Request, id: _ID, kind: _KIND = "string") -> Response:
        """Delete an item; it is gone from the disk, too, when this is answered."""
        await service.delete(_id(id, kind), service.asker(request))
        return json_response({"deleted": 1})

    @router.get(
        "/items/{id}/image",
        response_class=Response,
        responses={200: {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The picture."}},
    )
    async def image(
        request: Request, id: _ID, kind: _KIND = "string", size: Annotated[int, Query(ge=1, le=MAX_SIDE)] = 256
    ) -> Response:
        """Get the picture that the payload's field `image` names, at most `size` pixels wide and high."""
        picture = await service.picture(_id(id, kind), size, service.asker(request))
        headers = {"Cache-Control": "private, max-age=300"}
        return AnswerBody(picture.content, picture.media_type, headers)

    return router


def _id(text: str, kind: str) -> Id:
    """Return the id in a part of a path, which is still percent-encoded."""
    try:
        decoded = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(400, "id", "the id in the path is not UTF-8") from None
    if kind == "string":
        return decoded
    digits = decoded.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise Problem(422, "id", "the id in the path is no integer of 64 bits; leave out kind=integer for a string")
    return int(decoded)


def group_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/groups."""
    router = APIRouter(prefix="/v1", tags=["groups"], responses=ERRORS)

    @router.post("/groups", response_model=GroupsAnswer, openapi_extra=json_body(GroupsRequest))
    async def groups(request: Request) -> Response:
        """List groups of near duplicates, largest first; 503 while they are made for the first time."""
        asker = service.asker(request)
        asked = await read_json(request, GroupsRequest, asker)
        found = await service.groups(asked, asker)
        n_members = sum(len(group.members) for group in found.groups.groups)
        return AnswerBody(await service.written(asker, partial(groups_body, found), n_members))

    @router.post(
        "/groups/members",
        response_model=GroupMembersAnswer,
        openapi_extra=json_body(GroupMembersRequest),
    )
    async def group_members(request: Request) -> Response:
        """List members of a group, the representative first, then those nearest to it."""
        asker = service.asker(request)
        asked = await read_json(request, GroupMembersRequest, asker)
        found = await service.group_members(asked, asker)
        return AnswerBody(await service.written(asker, partial(members_body, found), len(found.members)))

    return router


def status_routes(service: Service, instruments: Instruments, readiness: Readiness) -> APIRouter:
    """Return the routes of /healthz, /readyz, /metrics and /v1/stats."""
    router = APIRouter(tags=["status"], responses=ERRORS)

    @router.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """Answer that the process lives."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> str:
        """Answer if requests should be sent here: the store can be read, and has room if it takes changes."""
        reason = await readiness.reason()
        if reason is not None:
            raise not_ready(reason)
        return "ready\n"

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Get counters in Prometheus' text format."""
        return Response(
            await asyncio.to_thread(_metrics, service, instruments),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )

    @router.get("/v1/stats", response_model=StatsAnswer)
    async def stats(request: Request) -> Response:
        """Get what is served: items, bits, memory, the balance of bits, and the searches that the store can do."""
        role = facts_of(request.scope).role
        return json_response(await asyncio.to_thread(_stats, service, may_write=role is None or allows(role, "write")))

    return router


def _metrics(service: Service, instruments: Instruments) -> bytes:
    instruments.read()
    instruments.read_store()
    return service.meters.text()


def _stats(service: Service, *, may_write: bool) -> dict[str, Any]:
    store = service.store
    facts = store.stats()
    sample = service.work.sampler.sample()
    kind = store.embeddings
    shape = service.work.input_shape
    return {
        "version": hamtarget.__version__,
        "items": facts.items,
        "codes": facts.codes,
        "n_bits": facts.n_bits,
        "radius": facts.radius,
        "substrings": store.substrings,
        "searches": service.work.searches,
        "advised": service.work.advised,
        "embedding": None if kind is None else f"{kind.n_dims} x {kind.dtype}, {kind.metric}",
        "input_shape": None if shape is None else list(shape),
        "index_bytes": facts.index_bytes,
        "disk_bytes": facts.disk_bytes,
        "resident_bytes": resident_bytes(),
        "bit_balance": sample.bit_balance.round(4).tolist(),
        "sample_rows": len(sample.codes),
        "writable": service.settings.writable and service.takes_changes and may_write,
        "images": bool(service.work.pictures),
        "examples": sample.examples,
    }


def map_routes(service: Service) -> APIRouter:
    """Return the route of /v1/map."""
    router = APIRouter(prefix="/v1", tags=["status"], responses=ERRORS)

    @router.get("/map", response_model=MapAnswer)
    async def draw(request: Request, n: Annotated[int, Query(ge=1, le=MAX_POINTS)] = 2000) -> Response:
        """Get `n` items, drawn at random, as points of a plane: the two principal components of their codes."""
        return AnswerBody(await service.map(n, service.asker(request)))

    return router


def page_routes() -> APIRouter:
    """Return the routes of the pages and their files."""
    router = APIRouter(include_in_schema=False)
    folder = importlib.resources.files("hamtarget.serve") / "page"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if _suffix(file.name) in _TYPES}

    def answer(name: str, headers: dict[str, str] | None = None) -> Response:
        return Response(files[name], media_type=_TYPES[_suffix(name)], headers=headers)

    @router.get("/")
    async def index() -> Response:
        return answer("index.html", _FRESH)

    @router.get("/docs")
    async def docs() -> Response:
        return answer("docs.html", _FRESH)

    @router.get("/favicon.ico")
    async def icon() -> Response:
        return answer("icon.svg")

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        # Pages have addresses of their own.
        if name not in files or name.endswith(".html"):
            raise not_found("there is no such file")
        return answer(name, _FRESH)

    return router


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix
