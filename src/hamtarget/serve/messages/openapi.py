"""Parts of the OpenAPI document: bodies that are read by hand, and refusals."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from hamtarget.serve.messages.problem_messages import ErrorAnswer

_MEANINGS = {
    400: "The body is neither JSON nor a form.",
    401: "The token is missing or wrong.",
    403: "The token's role does not allow it, the service takes no changes, or a page of another site asks.",
    404: "There is no such item.",
    408: "The body arrived too slowly.",
    413: "The body is too large, or the request takes more work than one request may.",
    415: "The body has another media type, or is compressed.",
    421: "The host name is not one of the service.",
    422: "The request asks for something that cannot be done; see the message.",
    429: "This client has its share under way already; try again after Retry-After seconds.",
    431: "The headers are too large.",
    501: "A package that the request needs is not installed.",
    503: "Too many requests are waiting; try again after Retry-After seconds.",
    504: "The request took too long.",
    507: "The disk is full; nothing was changed.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": meaning} for status, meaning in _MEANINGS.items()
}


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the part of an operation that describes a body of this kind."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(model)}}}}


def query_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the same for a query, which may also be a form with an image."""
    body = json_body(model)
    body["requestBody"]["content"]["multipart/form-data"] = {
        "schema": {
            "type": "object",
            "required": ["image"],
            "properties": {
                "image": {"type": "string", "format": "binary"},
                "request": {"type": "string", "description": "Everything else, as JSON.", "example": '{"limit": 10}'},
            },
        }
    }
    return body


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema without references."""
    schema = model.model_json_schema(ref_template="#/$defs/{model}")
    definitions = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inline(schema, definitions)
    return inlined


def _inline(part: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inline(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inline(definitions[part["$ref"].removeprefix("#/$defs/")], definitions)
    return {key: _inline(each, definitions) for key, each in part.items()}
