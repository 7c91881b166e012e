"""From a request's body, JSON or a form with an image, to what it asks for."""

from __future__ import annotations

import binascii
import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from hamtarget.serve.problems import Problem

Model = TypeVar("Model", bound=BaseModel)

_SHOWN_ERRORS = 3
_FIELDS = 4
_MAX_FIELD_BYTES = 64 * 2**10


async def read_json(request: Request, model: type[Model]) -> Model:
    """The body as a message of this kind.

    Raises:
        Problem: it is no JSON, or says something else.
    """
    kind = _media_type(request)
    if kind not in ("application/json", ""):
        raise Problem(415, "media_type", f"the body is {kind[:100]!r}; expected application/json")
    return parse(await request.body(), model)


async def read_query(request: Request, model: type[Model]) -> tuple[Model, bytes | None]:
    """The body as a query, and the image that came with it as a file.

    A form has the image in the part `image`, and everything else as JSON in the part `request`.
    """
    if _media_type(request) != "multipart/form-data":
        return await read_json(request, model), None
    try:
        async with request.form(max_files=1, max_fields=_FIELDS, max_part_size=_MAX_FIELD_BYTES) as form:
            image, asked = form.get("image"), form.get("request", "{}")
            if not isinstance(image, UploadFile) or not isinstance(asked, str):
                raise Problem(422, "input", "the form has no file `image`, or `request` is a file; expected both right")
            return parse(asked.encode("utf-8", "surrogatepass"), model), await image.read()
    except HTTPException as error:
        raise Problem(400, "form", f"the form cannot be read: {error.detail}") from None
    except (UnicodeError, LookupError, ValueError) as error:
        raise Problem(400, "form", "the form cannot be read: its names are not in its charset") from error


def parse(body: bytes, model: type[Model]) -> Model:
    """JSON as a message of this kind.

    Raises:
        Problem: it is no JSON, or says something else.
    """
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


def from_base64(text: str, *, name: str) -> bytes:
    """The bytes that the text says.

    Raises:
        Problem: it is not base64.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise Problem(422, "input", f"{name} is not base64") from None


def from_hex(text: str, n_bits: int) -> bytes:
    """A code of so many bits.

    Raises:
        Problem: it has another length.
    """
    if len(text) * 4 != n_bits:
        raise Problem(422, "input", f"the code has {len(text)} hexadecimal digits; {n_bits} bits take {n_bits // 4}")
    return bytes.fromhex(text)


def to_json(content: object) -> bytes:
    """JSON as it is sent."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
