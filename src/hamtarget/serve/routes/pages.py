"""The page, and the page about the endpoints; both are files of this package."""

from __future__ import annotations

import importlib.resources
from pathlib import PurePosixPath

from fastapi import APIRouter
from starlette.responses import Response

from hamtarget.serve.problems import not_found

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The browser asks again each time, so that an updated package shows its new page.
_FRESH = {"Cache-Control": "no-cache"}


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
