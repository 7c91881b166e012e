"""Reading bodies of requests: JSON, or a form with an image."""

from __future__ import annotations

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
    """Return the body as a message of this kind.

    Raises:
        Problem: the body is not JSON, or not such a message.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", ""):
        raise Problem(415, "media_type", f"the body is {kind[:100]!r}; expected application/json")
    return _parse(await request.body(), model)


async def read_query(request: Request, model: type[Model]) -> Model:
    """Return the body as a query; its field `image` may have come as a file of a form.

    A form has the image in the part `image`, and everything else as JSON in the part `request`.

    Raises:
        Problem: the body is neither JSON nor such a form, or not such a message.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return await read_json(request, model)
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
    except HTTPException as error:
        raise Problem(400, "form", f"the form cannot be read: {error.detail}") from None
    except (UnicodeError, LookupError, ValueError) as error:
        raise Problem(400, "form", "the form cannot be read: its names are not in its charset") from error


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
