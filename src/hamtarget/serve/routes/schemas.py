"""Requests and answers as JSON; the OpenAPI document is made of these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_ID_CHARACTERS = 1024
MAX_VECTOR = 65_536
DEFAULT_LIMIT = 50

Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
ItemId = Annotated[
    Integer | Annotated[str, Field(max_length=MAX_ID_CHARACTERS)],
    Field(description='A string, or an integer that int64 holds; 1 and "1" are two ids.'),
]
HexCode = Annotated[
    str,
    Field(
        pattern="^[0-9a-fA-F]+$", max_length=256, description="Packed bytes as hexadecimal digits.", examples=["0f1e"]
    ),
]
Vector = Annotated[list[float], Field(min_length=1, max_length=MAX_VECTOR)]
Base64 = Annotated[str, Field(description="Bytes of a file, in base64.", examples=["iVBORw0KGgo="])]


class _Message(BaseModel):
    # Strict: "7" is not 7, and true is not 1. JSON's NaN and 1e999 are refused wherever a number is expected.
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Bounds(_Message):
    """Values from `min` to `max`, both included: two numbers or two strings."""

    min: float | int | str | None = None
    max: float | int | str | None = None


Filter = Annotated[
    dict[Annotated[str, Field(max_length=256)], Bounds | str | int | float | bool | None],
    Field(max_length=16, description="Top-level fields of the payload: a value each, or {min, max}."),
]


class _Query(_Message):
    """What is looked for: one of `code`, `vector`, `image` and `id`."""

    code: HexCode | None = None
    vector: Vector | None = None
    image: Base64 | None = None
    id: ItemId | None = None
    embedding: Vector | None = Field(None, description="Of the query, to rank hits by; needed with `code` only.")
    filter: Filter | None = None
    payload: bool = Field(True, description="Whether hits come with their payloads.")
    codes: bool = Field(False, description="Whether hits come with their codes.")
    histogram: bool = Field(
        False, description="Whether the distances of the query to all items, or a sample, are counted."
    )
    rerank: bool = Field(False, description="Whether hits are ordered by embedding distance, where items have some.")


class SearchRequest(_Query):
    """Everything within `radius` bits, nearest first, at most `limit`."""

    radius: int | None = Field(None, ge=0, le=1023, description="The store's own by default.")
    limit: int = Field(DEFAULT_LIMIT, ge=1)


class NearestRequest(_Query):
    """The `k` nearest."""

    k: int = Field(10, ge=1)


class _Batch(_Message):
    """Many queries: `codes` or `codes_base64`, or `vectors`."""

    codes: list[HexCode] | None = Field(None, min_length=1)
    codes_base64: str | None = Field(None, description="The packed rows of all codes, one after another, in base64.")
    vectors: list[Vector] | None = Field(None, min_length=1)
    filter: Filter | None = None
    arrays: Literal["json", "base64"] = Field(
        "json",
        description="base64: arrays of the answer as little-endian numbers, `offsets` and `ids` of 64 bits (where all "
        "ids are integers), `distances` of 16 bits.",
    )


class BatchSearchRequest(_Batch):
    """Everything within `radius` bits of each query, at most `limit` hits each."""

    radius: int | None = Field(None, ge=0, le=1023, description="The store's own by default.")
    limit: int = Field(10, ge=1)


class BatchNearestRequest(_Batch):
    """The `k` nearest of each query."""

    k: int = Field(10, ge=1)


class ItemIn(_Message):
    """An item to be kept: an id, one of `code`, `vector` and `image`, and what else is known."""

    id: ItemId
    code: HexCode | None = None
    vector: Vector | None = None
    image: Base64 | None = None
    embedding: Vector | None = None
    payload: dict[str, Any] | None = None


class PutRequest(_Message):
    """Items to be kept, in place of those with the same ids; all of them or none."""

    items: list[ItemIn] = Field(min_length=1)


class HitOut(BaseModel):
    """An item that was found."""

    id: int | str
    distance: int = Field(description="Hamming distance to the query.")
    embedding_distance: float | None = None
    code: str | None = None
    payload: dict[str, Any] | None = None


class Took(BaseModel):
    """Milliseconds."""

    encode_ms: float = Field(description="In the encoder, for the batch that the query was in.")
    index_ms: float = Field(description="In the index, for the batch that the query was in.")


class Histogram(BaseModel):
    """How many items lie at each distance from the query."""

    counts: list[int] = Field(description="Items at 0, 1, 2, ... bits.")
    rows: int = Field(description="Items that were counted.")
    sampled: bool = Field(description="Whether they are a sample of the store.")


class SearchAnswer(BaseModel):
    """Hits of one query, and what they took."""

    code: str = Field(description="Of the query.")
    embedding: list[float] | None = Field(None, description="Of the query, if hits were ordered by it.")
    radius: int | None
    hits: list[HitOut]
    truncated: bool = Field(description="Whether there are as many hits as the limit allows, and perhaps more.")
    buckets: int
    candidates: int = Field(description="Rows read.")
    comparisons: int = Field(description="Embedding distances computed.")
    took: Took
    histogram: Histogram | None = None


class BatchAnswer(BaseModel):
    """Hits of all queries, one after another; those of query q lie from offsets[q] to offsets[q + 1]."""

    offsets: list[int] | str
    ids: list[int | str] | str
    distances: list[int] | str
    candidates: int = Field(description="Rows read for all queries.")
    comparisons: int
    index_ms: float


class PutAnswer(BaseModel):
    """How many items were kept; they are on disk."""

    items: int


class DeleteAnswer(BaseModel):
    """How many items were deleted: 1."""

    deleted: int


class ItemOut(BaseModel):
    """An item as it is kept."""

    id: int | str
    code: str
    embedding: list[float] | None = None
    payload: dict[str, Any] | None = None
    has_image: bool


class StatsAnswer(BaseModel):
    """What is served, and how."""

    version: str
    items: int
    n_bits: int
    radius: int
    substrings: int
    embedding: str | None = Field(description="What embeddings are kept, if any: length, kind of number, metric.")
    input_shape: list[int] | None = Field(description="What the encoder takes; null: codes only.")
    index_bytes: int
    disk_bytes: int
    resident_bytes: int | None = Field(description="Memory of the whole process.")
    bit_balance: list[float] = Field(description="Share of items with a 1, bit by bit, in a sample.")
    sample_rows: int
    writable: bool
    images: bool = Field(description="Whether items can be shown as images.")
    examples: list[int | str] = Field(description="Ids to begin with.")


class ErrorDetail(BaseModel):
    """What went wrong."""

    kind: str
    message: str


class ErrorAnswer(BaseModel):
    """A request that was refused."""

    error: ErrorDetail
