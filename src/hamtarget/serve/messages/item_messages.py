"""Requests and answers about items, as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from hamtarget.items import MAX_CODES
from hamtarget.serve.messages.fields import MAX_ITEMS, Base64, HexCode, ItemId, Message, Text, Vector


class ItemIn(Message):
    """An item to keep: an id, one of `code`, `vector`, `image` and `text`, and perhaps an embedding and a payload.

    An item with several codes has a list in their place: one of `codes`, `vectors`, `images` and `texts`.
    """

    id: ItemId
    code: HexCode | None = None
    vector: Vector | None = None
    image: Base64 | None = None
    text: Text | None = None
    embedding: Vector | None = None
    payload: dict[str, Any] | None = None
    codes: list[HexCode] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    vectors: list[Vector] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    images: list[Base64] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    texts: list[Text] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    embeddings: list[Vector] | None = Field(
        None, fail_fast=True, min_length=1, max_length=MAX_CODES, description="One for each of several codes."
    )


class PutRequest(Message):
    """Items to keep, in place of those with the same ids; all of them or none."""

    most_nested = 100_000

    items: list[ItemIn] = Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)


class PutAnswer(BaseModel):
    """Number of items that were kept; they are on disk."""

    items: int


class DeleteAnswer(BaseModel):
    """Number of items that were deleted: 1."""

    deleted: int


class ItemOut(BaseModel):
    """An item as it is kept."""

    id: int | str
    code: str | None = Field(None, description="Absent for an item with several codes.")
    codes: list[str] | None = Field(None, description="In place of `code`, for an item with several.")
    embedding: list[float] | None = None
    embeddings: list[list[float]] | None = Field(None, description="One for each of several codes.")
    payload: dict[str, Any] | None = None
    has_image: bool
