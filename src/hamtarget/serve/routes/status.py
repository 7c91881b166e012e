"""Endpoints that tell how the service is."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

import hamtarget
from hamtarget.serve import messages
from hamtarget.serve.answers import json_response
from hamtarget.serve.openapi import ERRORS
from hamtarget.serve.problems import busy
from hamtarget.serve.service import Service


def status_routes(service: Service) -> APIRouter:
    """Return the routes of /healthz, /readyz, /metrics and /v1/stats."""
    router = APIRouter(tags=["status"], responses=ERRORS)

    @router.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """Answer that the process lives."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> str:
        """Answer if requests are taken: the store is open, and the service is not about to end."""
        if not service.is_ready:
            raise busy("the service is starting or ending")
        return "ready\n"

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Get counters in Prometheus' text format."""
        return Response(
            await asyncio.to_thread(_metrics, service), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @router.get("/v1/stats", response_model=messages.StatsAnswer)
    async def stats() -> Response:
        """Get what is served: items, bits, memory, the balance of bits, and the searches that the store can do."""
        return json_response(await asyncio.to_thread(_stats, service))

    return router


def _metrics(service: Service) -> bytes:
    facts = service.store.stats()
    service.meters.rows.set(facts.items)
    service.meters.index_bytes.set(facts.index_bytes)
    return service.meters.text()


def _stats(service: Service) -> dict[str, Any]:
    store = service.store
    facts = store.stats()
    sample = service.work.sampler.sample()
    kind = store.embeddings
    shape = service.work.input_shape
    return {
        "version": hamtarget.__version__,
        "items": facts.items,
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
        "writable": not store.read_only,
        "images": bool(service.work.pictures),
        "examples": sample.examples,
    }


def resident_bytes() -> int | None:
    """Return the memory of this process; None where the system does not tell it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
