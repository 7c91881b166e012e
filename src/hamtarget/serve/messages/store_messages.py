"""Answers about a store as a whole, its figures and its map, as JSON."""

from __future__ import annotations

from pydantic import BaseModel, Field

from hamtarget.serve.messages.search_messages import Kind


class PointOut(BaseModel):
    """An item as a point of a map."""

    id: int | str
    x: float = Field(description="From -1 to 1.")
    y: float = Field(description="From -1 to 1.")
    label: str | None = Field(description="The payload's field `label` or `class`.")


class MapAnswer(BaseModel):
    """Items of the store as points of a plane: near codes lie near each other, as far as a plane allows."""

    points: list[PointOut]
    shares: list[float] = Field(description="Share of the codes' variance along x, and along y.")
    sampled: bool = Field(description="True if they are a sample of the store.")


class StatsAnswer(BaseModel):
    """Figures of the store and of the service."""

    version: str
    items: int
    codes: int = Field(description="More than items, if some of these have several.")
    n_bits: int
    radius: int
    substrings: int
    searches: list[Kind] = Field(description="Searches that this store can do.")
    advised: Kind = Field(
        description="The search that suits the store: nearest where it keeps vectors, probe where the encoder was "
        "trained for probing."
    )
    embedding: str | None = Field(description="Embeddings that are kept, if any: length, kind of number, metric.")
    input_shape: list[int] | None = Field(
        description="Shape of the encoder's inputs, empty for texts; null: codes only."
    )
    index_bytes: int
    disk_bytes: int
    resident_bytes: int | None = Field(description="Memory of the whole process.")
    bit_balance: list[float] = Field(description="Share of items with a 1, bit by bit, in a sample.")
    sample_rows: int
    writable: bool = Field(description="True if the service takes changes, and the token of this request allows them.")
    images: bool = Field(description="True if items can be shown as images.")
    examples: list[int | str] = Field(description="A few ids to begin with.")
