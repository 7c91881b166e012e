"""The service as an ASGI application: the guard, a short way to the searches, and FastAPI's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

import hamtarget
from hamtarget.errors import HamtargetError
from hamtarget.serve.access.access_log import AccessLog
from hamtarget.serve.access.guard import Guard
from hamtarget.serve.access.request_facts import facts_of
from hamtarget.serve.access.roles import check_roles
from hamtarget.serve.access.token_ring import TokenRing, reloading_at_hangup
from hamtarget.serve.instruments.gauges import Instruments
from hamtarget.serve.instruments.readiness import Readiness
from hamtarget.serve.passing import PassOn
from hamtarget.serve.problems import Problem, problem_of
from hamtarget.serve.routes import group_routes, item_routes, map_routes, page_routes, search_routes, status_routes
from hamtarget.serve.service import Service
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store

_DESCRIPTION = (
    "Find everything within a Hamming distance of a query, exactly; the nearest items; or, fast, the likeliest."
)
# Of the time to drain: what is left when the requests are answered or given up.
_LAST_SHARE = 0.1
_KINDS = {404: "not_found", 405: "method"}
# Key of an exception in the state of a request.
_FAILURE = "hamtarget_failure"

Endpoint = Callable[[Request], Awaitable[Response]]
Handler = Callable[[Request, Any], Awaitable[Response]]


@dataclass(slots=True, eq=False)
class Application:
    """A service, and the way into it.

    Attributes:
        entry: the ASGI application: the guard, behind it a short way to the searches, and FastAPI's routes.
        service: the service.
        is_stuck: True if a thread of the service has not ended with it.
    """

    entry: ASGIApp
    service: Service
    is_stuck: bool = False


def create_app(store: Store, settings: ServiceSettings | None = None, *, writer: Path | None = None) -> Application:
    """Return the service of an open store, which is closed when the service ends.

    Args:
        store: store to serve; opened for reading only, unless items may be put.
        settings: settings of the service; careful ones by default.
        writer: socket of the process to pass changes on to; None: they are made here, if the store allows it.

    Raises:
        FileError: the tokens file cannot be used, or the access log cannot be written.
    """
    settings = settings or ServiceSettings()
    # Before the service starts its threads: a file that cannot be used ends it here.
    tokens = TokenRing(token=settings.token, path=settings.tokens_file)
    access_log = AccessLog(settings.access_log)
    access_log.open()
    service = Service(store, settings)
    instruments = Instruments(store, service.meters, service.memory)
    readiness = Readiness(store, settings, is_taking=lambda: service.is_ready)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            with reloading_at_hangup(tokens):
                async with instruments.reading():
                    await service.start()
                    yield
                    await service.drain(_LAST_SHARE * settings.drain_seconds)
        except TimeoutError:
            # A thread is stuck, and may hold what closing the store would wait for.
            application.is_stuck = True
        else:
            store.close()
        finally:
            access_log.close()

    app = FastAPI(
        title="hamtarget",
        version=hamtarget.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Both load scripts from other sites; /docs is a page of this package.
        docs_url=None,
        redoc_url=None,
    )
    searches, items, groups = search_routes(service), item_routes(service), group_routes(service)
    for router in (
        searches,
        items,
        groups,
        map_routes(service),
        status_routes(service, instruments, readiness),
        page_routes(),
    ):
        check_roles(router.routes)
        app.include_router(router)

    def refuse(request: Request, problem: Problem) -> Response:
        # The guard counts it, and writes it into the access log.
        facts_of(request.scope).error = problem.kind
        return problem.response()

    async def on_problem(request: Request, error: Any) -> Response:
        return refuse(request, error)

    async def on_library_error(request: Request, error: Any) -> Response:
        problem = problem_of(error)
        if problem.status == 500:
            # Its text is not for the client: the guard logs it and answers 500.
            raise error
        return refuse(request, problem)

    async def on_http_error(request: Request, error: Any) -> Response:
        kind = _KINDS.get(error.status_code, "request")
        return refuse(request, Problem(error.status_code, kind, str(error.detail), headers=error.headers))

    async def on_validation_error(request: Request, error: Any) -> Response:
        said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        return refuse(request, Problem(422, "input", said))

    handlers: dict[type[Exception], Handler] = {
        Problem: on_problem,
        RequestValidationError: on_validation_error,
        HamtargetError: on_library_error,
        HTTPException: on_http_error,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    # Around FastAPI, not among its own middleware: that would cost a search for one code a tenth of its time.
    entry: ASGIApp = Framework(app)
    if writer is not None:
        service.takes_changes = True
        entry = PassOn(entry, to=writer, routes=_api_routes(items, groups))
    entry = Shortcut(entry, routes=plain_routes(searches), handlers=handlers)
    entry = Guard(
        entry,
        settings=settings,
        meters=service.meters,
        memory=service.memory,
        tokens=tokens,
        access_log=access_log,
        readiness=readiness,
    )
    if settings.trusted_proxies:
        # The guard then takes the proxy's word for the client's address.
        # uvicorn and Starlette have different types for the same interface.
        entry = ProxyHeadersMiddleware(entry, trusted_hosts=list(settings.trusted_proxies))  # type: ignore[arg-type, assignment]
    application = Application(entry, service)
    return application


def _api_routes(*routers: APIRouter) -> list[APIRoute]:
    return [route for router in routers for route in router.routes if isinstance(route, APIRoute)]


class Framework:
    """An application of FastAPI whose exceptions are raised and not answered.

    FastAPI answers an exception, and raises it again. The guard, which answers, counts and logs, would come too late.

    Args:
        app: the application.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        # Middleware that is added lies between what answers exceptions and the routes.
        app.add_middleware(_Catch)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)
        error: Exception | None = scope.get("state", {}).pop(_FAILURE, None)
        if error is not None:
            raise error


class _Catch:
    """Middleware that keeps an exception for whoever called the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            scope["state"][_FAILURE] = error


def plain_routes(router: APIRouter) -> list[APIRoute]:
    """Return the routes of a router whose endpoints take nothing but the request."""
    return [each for each in router.routes if isinstance(each, APIRoute) and not each.dependant.path_params]


class Shortcut:
    """Middleware that calls some endpoints itself, which take a request and return a response.

    FastAPI still has their routes, for the OpenAPI document and for requests with another method. A call through its
    router costs several times what these endpoints do for a request with one code.

    Args:
        app: the application, for all other requests.
        routes: routes whose endpoints take nothing but the request.
        handlers: functions that turn exceptions of a class, or of one that inherits from it, into a response.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[APIRoute], handlers: dict[type[Exception], Handler]) -> None:
        self._app = app
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except Exception as error:
            handle = next((self._handlers[each] for each in type(error).__mro__ if each in self._handlers), None)
            if handle is None:
                raise
            response = await handle(request, error)
        await response(scope, receive, send)
