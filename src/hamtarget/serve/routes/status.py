"""Endpoints that tell how the service is."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import hamtarget
from hamtarget.serve.access.request_facts import facts_of
from hamtarget.serve.access.roles import allows
from hamtarget.serve.instruments.gauges import Instruments
from hamtarget.serve.instruments.machine import resident_bytes
from hamtarget.serve.instruments.readiness import Readiness
from hamtarget.serve.messages.answer_bodies import json_response
from hamtarget.serve.messages.openapi import ERRORS
from hamtarget.serve.messages.store_messages import StatsAnswer
from hamtarget.serve.problems import not_ready
from hamtarget.serve.service import Service


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
