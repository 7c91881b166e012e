"""Reading bodies of requests: JSON, or a form with an image."""

from __future__ import annotations

import time
from functools import partial
from typing import TypeVar

from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from hamtarget.serve.lanes.askers import Asker
from hamtarget.serve.messages.fields import Message
from hamtarget.serve.problems import Problem, too_much

Model = TypeVar("Model", bound=Message)

_TYPE = b"content-type"
_SHOWN_ERRORS = 3
_FIELDS = 4
_MAX_FIELD_BYTES = 64 * 2**10
# A larger body is parsed in the slow lane, when it is the client's turn.
LARGE_BYTES = 128 * 2**10
# Bytes of memory for each of these in a body, at most: a value, a list, an object, a member of an object.
_VALUE_BYTES, _LIST_BYTES, _OBJECT_BYTES, _MEMBER_BYTES = 40, 72, 280, 120


async def read_json(request: Request, model: type[Model], asker: Asker) -> Model:
    """Return the body as a message of this kind.

    Raises:
        Problem: the body is not JSON, or not such a message, or takes too much memory.
    """
    kind = _content_type(request).partition(";")[0].strip()
    if kind not in ("application/json", ""):
        raise Problem(415, "media_type", f"the body is {kind[:100]!r}; expected application/json")
    body = await _whole_body(request)
    # What it is parsed into stays until the answer is sent.
    asker.holding.take(parsed_bytes(body))
    if len(body) > model.most_nested and body.count(b"{") + body.count(b"[") > model.most_nested:
        raise too_much("lists and objects", model.most_nested, "send less at a time")
    if len(body) <= LARGE_BYTES:
        return _parse(body, model)
    return await asker.slowly(partial(_parse_slowly, body, model))


async def read_query(request: Request, model: type[Model], asker: Asker) -> Model:
    """Return the body as a query; its field `image` may have come as a file of a form.

    A form has the image in the part `image`, and everything else as JSON in the part `request`.

    Raises:
        Problem: the body is neither JSON nor such a form, or not such a message.
    """
    if not _content_type(request).startswith("multipart/form-data"):
        return await read_json(request, model, asker)
    try:
        async with request.form(max_files=1, max_fields=_FIELDS, max_part_size=_MAX_FIELD_BYTES) as form:
            image, asked = form.get("image"), form.get("request", "{}")
            if not isinstance(image, UploadFile) or not isinstance(asked, str):
                raise Problem(
                    422, "input", "the form needs a file in the part `image`, and text, if any, in the part `request`"
                )
            message = _parse(asked.encode("utf-8", "surrogatepass"), model)
            if "image" in message.model_fields_set:
                raise Problem(422, "input", "the image is given twice, as a file and in `request`; send one of them")
            return message.model_copy(update={"image": await image.read()})
    except MultiPartException as error:
        raise Problem(400, "form", f"the form cannot be read: {error.message}") from None
    except (UnicodeError, LookupError, ValueError) as error:
        raise Problem(400, "form", "the form cannot be read: its names are not in its charset") from error


def _content_type(request: Request) -> str:
    """Return the header in lower case."""
    # `request.headers` would be made for this alone.
    return next((value.decode("latin-1").lower() for name, value in request.scope["headers"] if name == _TYPE), "")


async def _whole_body(request: Request) -> bytes:
    """Return the body, which mostly comes in one piece; `request.body` would put it together in any case.

    Raises:
        ClientDisconnect: the client went before it had sent all of it.
    """
    parts = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def parsed_bytes(body: bytes) -> int:
    """Return the memory that a body of JSON takes when it is parsed, at most; nothing is parsed for it.

    Commas, colons and brackets in strings are counted as well.
    """
    return (
        len(body)
        + _VALUE_BYTES * body.count(b",")
        + _LIST_BYTES * body.count(b"[")
        + _OBJECT_BYTES * body.count(b"{")
        + _MEMBER_BYTES * body.count(b":")
    )


def _parse_slowly(body: bytes, model: type[Model]) -> Model:
    """Parse a large body in a thread, and pause for as long as it took: nothing else can run in the meantime."""
    began = time.perf_counter()
    try:
        return _parse(body, model)
    finally:
        time.sleep(time.perf_counter() - began)


def _parse(body: bytes, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in errors[:_SHOWN_ERRORS]
        )
        more = f" (and {len(errors) - _SHOWN_ERRORS} more)" if len(errors) > _SHOWN_ERRORS else ""
        no_json = any(each["type"] == "json_invalid" for each in errors)
        raise Problem(400 if no_json else 422, "json" if no_json else "input", f"{said[:1000]}{more}") from None
