"""The page, and the page about the endpoints; both are files of this package."""

from __future__ import annotations

import importlib.resources

from fastapi import APIRouter
from starlette.responses import Response

from hamtarget.serve.problems import not_found

_SCRIPT = "text/javascript; charset=utf-8"
_TYPES = {
    "api.js": _SCRIPT,
    "docs.js": _SCRIPT,
    "draw.js": _SCRIPT,
    "icon.svg": "image/svg+xml",
    "page.css": "text/css; charset=utf-8",
    "page.js": _SCRIPT,
    "parts.js": _SCRIPT,
}
_HTML = "text/html; charset=utf-8"
# The browser asks again each time, so that an updated package shows its new page.
_FRESH = {"Cache-Control": "no-cache"}


def page_routes() -> APIRouter:
    """Return the routes of the pages and their files."""
    router = APIRouter(include_in_schema=False)
    folder = importlib.resources.files("hamtarget.serve") / "page"
    files = {name: (folder / name).read_bytes() for name in (*_TYPES, "index.html", "docs.html")}

    @router.get("/")
    async def index() -> Response:
        return Response(files["index.html"], media_type=_HTML, headers=_FRESH)

    @router.get("/docs")
    async def docs() -> Response:
        return Response(files["docs.html"], media_type=_HTML, headers=_FRESH)

    @router.get("/favicon.ico")
    async def icon() -> Response:
        return Response(files["icon.svg"], media_type=_TYPES["icon.svg"])

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        if name not in _TYPES:
            raise not_found("there is no such file")
        return Response(files[name], media_type=_TYPES[name], headers=_FRESH)

    return router
