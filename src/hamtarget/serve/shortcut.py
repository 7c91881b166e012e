"""A short way to the endpoints that are called most: past the router and FastAPI's handling of parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fastapi.routing import APIRoute, APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]
Handler = Callable[[Request, Any], Awaitable[Response]]


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
