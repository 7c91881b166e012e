"""Endpoints that tell how the service is."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

import hamtarget
from hamtarget.serve.problems import busy
from hamtarget.serve.routes import schemas
from hamtarget.serve.routes.documents import ERRORS
from hamtarget.serve.routes.reading import to_json
from hamtarget.serve.service import Service


def status_routes(service: Service) -> APIRouter:
    """Routes of /healthz, /readyz, /metrics and /v1/stats."""
    router = APIRouter(tags=["status"], responses=ERRORS)

    @router.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """That the process lives."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> str:
        """That requests are taken: the store is open, and the service is not about to end."""
        if not service.is_ready:
            raise busy("the service is starting or ending")
        return "ready\n"

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters, in Prometheus' text format."""
        return Response(
            await asyncio.to_thread(_metrics, service), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @router.get("/v1/stats", response_model=schemas.StatsAnswer)
    async def stats() -> Response:
        """What is served: items, bits, memory, the balance of bits."""
        return Response(to_json(await asyncio.to_thread(_stats, service)), media_type="application/json")

    return router


def _metrics(service: Service) -> bytes:
    service.meters.rows.set(len(service.store))
    service.meters.index_bytes.set(service.store.index_memory)
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
    """Memory of this process; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
