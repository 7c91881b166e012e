"""FastAPI's application behind the guard: what fails in it reaches the guard unanswered."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

_FAILURE = "hamtarget_failure"


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
