"""Endpoints of items."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.items import Id
from hamtarget.serve.messages.answer_bodies import AnswerBody, item_body, json_response
from hamtarget.serve.messages.item_messages import DeleteAnswer, ItemOut, PutAnswer, PutRequest
from hamtarget.serve.messages.openapi import ERRORS, json_body
from hamtarget.serve.messages.request_bodies import read_json
from hamtarget.serve.pictures import MAX_SIDE
from hamtarget.serve.problems import Problem
from hamtarget.serve.service import Service

_ID = Annotated[str, Path(description="The id, percent-encoded; a slash is %2F.")]
_KIND = Annotated[Literal["string", "integer"], Query(description='The type of the id; 1 and "1" are two ids.')]


def item_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/items."""
    router = APIRouter(prefix="/v1", tags=["items"], responses=ERRORS)

    @router.put("/items", response_model=PutAnswer, openapi_extra=json_body(PutRequest))
    async def put(request: Request) -> Response:
        """Keep items, in place of those with the same ids: all or none; they are on disk when this is answered."""
        asker = service.asker(request)
        asked = await read_json(request, PutRequest, asker)
        return json_response({"items": await service.put(asked.items, asker)})

    @router.get("/items/{id}", response_model=ItemOut)
    async def get(request: Request, id: _ID, kind: _KIND = "string") -> Response:
        """Get an item: its code, embedding and payload."""
        asker = service.asker(request)
        wanted = _id(id, kind)
        item = await service.item(wanted, asker)
        write = partial(item_body, wanted, item, has_image=service.has_image(item), pictures=service.work.pictures)
        return AnswerBody(await service.written(asker, write, 1))

    @router.delete("/items/{id}", response_model=DeleteAnswer)
    async def delete(request: Request, id: _ID, kind: _KIND = "string") -> Response:
        """Delete an item; it is gone from the disk, too, when this is answered."""
        await service.delete(_id(id, kind), service.asker(request))
        return json_response({"deleted": 1})

    @router.get(
        "/items/{id}/image",
        response_class=Response,
        responses={200: {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The picture."}},
    )
    async def image(
        request: Request, id: _ID, kind: _KIND = "string", size: Annotated[int, Query(ge=1, le=MAX_SIDE)] = 256
    ) -> Response:
        """Get the picture that the payload's field `image` names, at most `size` pixels wide and high."""
        picture = await service.picture(_id(id, kind), size, service.asker(request))
        headers = {"Cache-Control": "private, max-age=300"}
        return AnswerBody(picture.content, picture.media_type, headers)

    return router


def _id(text: str, kind: str) -> Id:
    """Return the id in a part of a path, which is still percent-encoded."""
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
