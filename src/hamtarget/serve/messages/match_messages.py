"""The request and the answer of a match, by several codes of one query, as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from hamtarget.filters import Filter
from hamtarget.items import MAX_CODES
from hamtarget.serve.messages.fields import (
    Base64,
    HexCode,
    ItemId,
    Message,
    PayloadFilter,
    Text,
    Vector,
    library_filter,
)
from hamtarget.serve.messages.search_messages import Took


class MatchRequest(Message):
    """Find the items that match codes of one query, which is one of `codes`, `vectors`, `images`, `texts` and `id`."""

    codes: list[HexCode] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    vectors: list[Vector] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    images: list[Base64] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    texts: list[Text] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_CODES)
    id: ItemId | None = Field(None, description="A stored item, whose codes are those of the query.")
    radius: int | None = Field(None, ge=0, le=1023, description="The store's radius by default.")
    at_least: int = Field(1, ge=1, description="Fewest codes of the query that an item must match.")
    limit: int = Field(50, ge=1)
    filter: PayloadFilter | None = None
    payload: bool = Field(True, description="True if matches come with their payloads.")

    @property
    def payload_filter(self) -> Filter | None:
        """The filter as the library takes it.

        Raises:
            InputError: the bounds of a range do not go together.
        """
        return library_filter(self.filter)


class MatchOut(BaseModel):
    """An item that was matched. A code is matched if a code of the other side lies within the radius."""

    id: int | str
    distance: int = Field(description="Smallest Hamming distance between a code of the query and one of the item.")
    n_query_matched: int = Field(description="Codes of the query that are matched.")
    n_query_codes: int = Field(description="Codes of the query.")
    n_item_matched: int = Field(description="Codes of the item that are matched.")
    n_item_codes: int = Field(description="Codes of the item.")
    pairs: list[tuple[int, int, int]] = Field(
        description="All pairs within the radius: which code of the query, which of the item, from 0 on, and distance."
    )
    payload: dict[str, Any] | None = None


class MatchAnswer(BaseModel):
    """Items, those with most matched codes of the query first, then those at the smallest distance."""

    codes: list[str] = Field(description="Codes of the query.")
    radius: int
    matches: list[MatchOut]
    truncated: bool = Field(description="True if there are as many matches as the limit allows, and perhaps more.")
    took: Took
