"""Fields that several requests have: ids, codes, vectors, texts, filters."""

from __future__ import annotations

import binascii
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from hamtarget.filters import Filter, Range

MAX_ID_CHARACTERS = 1024
MAX_VECTOR = 65_536
MAX_TEXT = 100_000
# Checked before anything is made of a body; the settings of a service are stricter.
MAX_QUERIES = 20_000
MAX_ITEMS = 20_000


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("expected text in base64")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ValueError("the text is not base64") from None


Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
ItemId = Annotated[
    Integer | Annotated[str, Field(max_length=MAX_ID_CHARACTERS)],
    Field(description='A string, or an integer of 64 bits; 1 and "1" are two ids.'),
]
HexCode = Annotated[
    str,
    Field(
        pattern="^[0-9a-fA-F]+$",
        max_length=256,
        description="The packed bytes of a code as hexadecimal digits.",
        examples=["0f1e"],
    ),
]
# Of a million errors in a body, one is told.
Vector = Annotated[list[float], Field(fail_fast=True, min_length=1, max_length=MAX_VECTOR)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, description="A text, for an encoder of texts.")]
Base64 = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    WithJsonSchema({"type": "string", "description": "Bytes in base64.", "examples": ["iVBORw0KGgo="]}),
]


class Message(BaseModel):
    """A request as JSON."""

    # Strict: "7" is not 7, and true is not 1. JSON's NaN and 1e999 are refused wherever a number is expected.
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    most_nested: ClassVar[int] = 4096
    """Lists and objects in a body, at most; parsing each of them takes microseconds."""


class Bounds(Message):
    """Values from `min` to `max`, both included: two numbers or two strings."""

    min: float | int | str | None = None
    max: float | int | str | None = None


PayloadFilter = Annotated[
    dict[Annotated[str, Field(max_length=256)], Bounds | str | int | float | bool | None],
    Field(max_length=16, description="Top-level fields of the payload: a value each, or {min, max}."),
]


def library_filter(filter: dict[str, Any] | None) -> Filter | None:
    """Return a filter as the library takes it.

    Raises:
        InputError: the bounds of a range do not go together.
    """
    if not filter:
        return None
    return Filter.of(
        {
            field: Range(wanted.min, wanted.max) if isinstance(wanted, Bounds) else wanted
            for field, wanted in filter.items()
        }
    )
