"""The service as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import hamtarget
from hamtarget.errors import HamtargetError
from hamtarget.serve.guard import Guard
from hamtarget.serve.problems import Problem, problem_of
from hamtarget.serve.routes.item_routes import item_routes
from hamtarget.serve.routes.pages import page_routes
from hamtarget.serve.routes.searches import search_routes
from hamtarget.serve.routes.status import status_routes
from hamtarget.serve.service import Service
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store

_DESCRIPTION = (
    "Find everything within a Hamming distance of a query, exactly; the nearest items; or, fast, the likeliest."
)
_KINDS = {404: "not_found", 405: "method"}


def create_app(store: Store, settings: ServiceSettings | None = None) -> FastAPI:
    """Return the service of an open store, which is closed when the service ends.

    Args:
        store: store to serve; opened for reading only, unless items may be put.
        settings: settings of the service; careful ones by default.
    """
    service = Service(store, settings or ServiceSettings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.drain()
        store.close()

    app = FastAPI(
        title="hamtarget",
        version=hamtarget.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Both load scripts from other sites; /docs is a page of this package.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(Guard, settings=service.settings, meters=service.meters, memory=service.memory)
    app.include_router(search_routes(service))
    app.include_router(item_routes(service))
    app.include_router(status_routes(service))
    app.include_router(page_routes())

    def refuse(problem: Problem) -> Response:
        service.meters.errors.labels(problem.kind).inc()
        return problem.response()

    async def on_problem(_: Request, error: Any) -> Response:
        return refuse(error)

    async def on_library_error(_: Request, error: Any) -> Response:
        problem = problem_of(error)
        if problem.status == 500:
            # Its text is not for the client: the guard logs it and answers 500.
            raise error
        return refuse(problem)

    async def on_http_error(_: Request, error: Any) -> Response:
        kind = _KINDS.get(error.status_code, "request")
        return refuse(Problem(error.status_code, kind, str(error.detail), headers=error.headers))

    async def on_validation_error(_: Request, error: Any) -> Response:
        said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        return refuse(Problem(422, "input", said))

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HamtargetError, on_library_error)
    app.add_exception_handler(HTTPException, on_http_error)
    return app
