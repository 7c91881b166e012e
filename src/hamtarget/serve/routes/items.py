"""Endpoints of single items."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import unquote_to_bytes

import numpy as np
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.items import Id
from hamtarget.serve.pictures import MAX_SIDE
from hamtarget.serve.problems import Problem
from hamtarget.serve.routes import schemas
from hamtarget.serve.routes.documents import ERRORS, json_body
from hamtarget.serve.routes.reading import read_json, to_json
from hamtarget.serve.service import Service

_JSON = "application/json"
_ID = Annotated[str, Path(description="The id, percent-encoded; a slash is %2F.")]
_KIND = Annotated[
    Literal["string", "integer"], Query(description='Whether the id is a string or an integer; 1 and "1" are two ids.')
]


def item_routes(service: Service) -> APIRouter:
    """Routes of /v1/items."""
    router = APIRouter(prefix="/v1", tags=["items"], responses=ERRORS)

    @router.put("/items", response_model=schemas.PutAnswer, openapi_extra=json_body(schemas.PutRequest))
    async def put(request: Request) -> Response:
        """Keep items, in place of those with the same ids: all or none; on disk when this is answered."""
        asked = await read_json(request, schemas.PutRequest)
        return Response(to_json({"items": await service.put(asked.items)}), media_type=_JSON)

    @router.get("/items/{id}", response_model=schemas.ItemOut)
    async def get(id: _ID, kind: _KIND = "string") -> Response:
        """An item: its code, embedding and payload."""
        wanted = _id(id, kind)
        item = await service.item(wanted)
        answer = {
            "id": wanted,
            "code": np.asarray(item.code, dtype=np.uint8).tobytes().hex(),
            "embedding": None if item.embedding is None else np.asarray(item.embedding).tolist(),
            "payload": item.payload,
            "has_image": service.has_image(item),
        }
        return Response(to_json(answer), media_type=_JSON)

    @router.delete("/items/{id}", response_model=schemas.DeleteAnswer)
    async def delete(id: _ID, kind: _KIND = "string") -> Response:
        """Delete an item; it is gone from the disk, too, when this is answered."""
        await service.delete(_id(id, kind))
        return Response(to_json({"deleted": 1}), media_type=_JSON)

    @router.get(
        "/items/{id}/image",
        response_class=Response,
        responses={200: {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The picture."}},
    )
    async def image(id: _ID, kind: _KIND = "string", size: Annotated[int, Query(ge=1, le=MAX_SIDE)] = 256) -> Response:
        """The picture that the payload's field `image` names, at most `size` pixels wide and high."""
        content, media_type = await service.picture(_id(id, kind), size)
        return Response(content, media_type=media_type, headers={"Cache-Control": "private, max-age=300"})

    return router


def _id(text: str, kind: str) -> Id:
    """The id that a part of the path says, still percent-encoded."""
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
