"""Requests and answers as JSON; the OpenAPI document is made of these."""

from __future__ import annotations

import binascii
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from hamtarget.filters import Filter, Range
from hamtarget.items import MAX_CODES

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
    return {
        field: Range(wanted.min, wanted.max) if isinstance(wanted, Bounds) else wanted
        for field, wanted in filter.items()
    }


Kind = Literal["search", "nearest", "probe"]


class _Search(Message):
    """Fields of every search."""

    kind: ClassVar[Kind]

    filter: PayloadFilter | None = None
    rerank: int | None = Field(
        None, ge=1, description="Of the hits, this many, those with the smallest embedding distance, in that order."
    )

    @property
    def payload_filter(self) -> Filter | None:
        """The filter as the library takes it.

        Raises:
            InputError: the bounds of a range do not go together.
        """
        return library_filter(self.filter)

    @property
    def key(self) -> tuple[object, ...]:
        """The question asked of each query: searches that agree in it can be done as one batch."""
        if not self.filter:
            return (type(self), self.rerank, *self._bounds)
        # 1 and true are equal to Python, but not to a filter.
        wanted = ((field, type(value), value) for field, value in self.filter.items())
        return (type(self), self.rerank, *self._bounds, *wanted)

    @property
    def cost_key(self) -> tuple[object, ...]:
        """The facts that the cost of a query depends on; neither values of a filter nor small differences of limits."""
        near = (None if bound is None else bound.bit_length() for bound in self._bounds[1:])
        fields = () if not self.filter else tuple(self.filter)
        return (self.kind, self._bounds[0], self.rerank is None, *near, *fields)

    @property
    def _bounds(self) -> tuple[int | None, ...]:
        """The numbers of a search, its radius first."""
        raise NotImplementedError


class _Within(_Search):
    """Everything within `radius` bits."""

    kind = "search"

    radius: int | None = Field(None, ge=0, le=1023, description="The store's radius by default.")
    limit: int = Field(50, ge=1)

    @property
    def _bounds(self) -> tuple[int | None, ...]:
        return (self.radius, self.limit)

    @property
    def most_hits(self) -> int:
        """Hits of a query, at most."""
        return self.limit


class _Nearest(_Search):
    """The `k` nearest."""

    kind = "nearest"

    k: int = Field(10, ge=1)
    recall: float | None = Field(
        None,
        gt=0,
        le=1,
        description="In a store that keeps vectors, for a query that is a vector or an item: share of the true nearest "
        "vectors to find; 0.95 by default, and 1 compares all.",
    )

    @property
    def form(self) -> Literal["code", "item", "input"]:
        """The form of the query: of a code no vector is known, and of an item no logits."""
        raise NotImplementedError

    @property
    def key(self) -> tuple[object, ...]:
        """The question asked of each query; see `_Search.key`."""
        return (*super().key, self.recall, self.form)

    @property
    def cost_key(self) -> tuple[object, ...]:
        """The facts that the cost of a query depends on; see `_Search.cost_key`."""
        return (*super().cost_key, None if self.recall is None else round(self.recall, 2), self.form == "code")

    @property
    def _bounds(self) -> tuple[int | None, ...]:
        return (None, self.k)

    @property
    def most_hits(self) -> int:
        """Hits of a query, at most."""
        return self.k


class _Probe(_Search):
    """The hits among the `budget` rows that are most likely to be near."""

    kind = "probe"
    default_limit: ClassVar[int] = 50

    budget: int | None = Field(
        None,
        ge=1,
        description="Rows read for a query, at most; by default a hundredth of the store, at least 1,000.",
    )
    radius: int | None = Field(
        None,
        ge=0,
        le=1023,
        description="By default the store's radius; any distance where the encoder was trained for probing.",
    )
    limit: int | None = Field(None, ge=1, description="With `rerank`, all rows that are read are ranked by default.")
    comparisons: int | None = Field(
        None, ge=1, description="With `rerank`: embeddings compared for each query, at most."
    )

    @property
    def _bounds(self) -> tuple[int | None, ...]:
        return (self.radius, self.limit, self.budget, self.comparisons)

    @property
    def hit_limit(self) -> int | None:
        """Hits of a query before they are ranked, at most; None: all."""
        return self.default_limit if self.limit is None and self.rerank is None else self.limit

    @property
    def most_hits(self) -> int:
        """Hits of a query, at most."""
        return self.rerank or self.hit_limit or self.default_limit


class _One(Message):
    """One query, as one of `code`, `vector`, `image`, `text` and `id`; and what to tell of its hits."""

    code: HexCode | None = None
    vector: Vector | None = None
    image: Base64 | None = None
    text: Text | None = None
    id: ItemId | None = None
    embedding: Vector | None = Field(None, description="Embedding of the query, for `rerank`; needed with `code` only.")
    payload: bool = Field(True, description="True if hits come with their payloads.")
    codes: bool = Field(False, description="True if hits come with their codes.")
    histogram: bool = Field(
        False, description="True to count the distances from the query to all items, or to a sample of them."
    )


class _Many(Message):
    """Many queries, as one of `codes`, `codes_base64`, `vectors` and `texts`."""

    most_nested = 3 * MAX_QUERIES

    codes: list[HexCode] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_QUERIES)
    codes_base64: Base64 | None = Field(None, description="The packed rows of all codes, one after another, in base64.")
    vectors: list[Vector] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_QUERIES)
    texts: list[Text] | None = Field(None, fail_fast=True, min_length=1, max_length=MAX_QUERIES)
    embedding: list[Vector] | None = Field(
        None,
        fail_fast=True,
        min_length=1,
        max_length=MAX_QUERIES,
        description="Embeddings of the queries, for `rerank`; needed with codes only.",
    )
    arrays: Literal["json", "base64"] = Field(
        "json",
        description="base64: arrays of the answer as little-endian numbers, `offsets` and `ids` of 64 bits (where all "
        "ids are integers) and costs of 64 bits, `distances` of 16 bits, `embedding_distances` floats of 32 bits.",
    )


class _Tied(_Search):
    """A search for one query that says how to order hits at equal distance."""

    ties: Literal["stored", "mixed"] = Field(
        "stored",
        description="Order of hits at equal distance. stored: integer ids first, ascending, then as they were stored. "
        "mixed: by embedding distance where query and items have embeddings, else by a hash of the id; the first of "
        "this order are chosen where a limit cuts a tie. Not with `rerank`, nor for the nearest vectors.",
    )

    @property
    def key(self) -> tuple[object, ...]:
        """The question asked of each query; see `_Search.key`."""
        return (*super().key, self.ties)

    @property
    def cost_key(self) -> tuple[object, ...]:
        """The facts that the cost of a query depends on; see `_Search.cost_key`."""
        return (*super().cost_key, self.ties)


class SearchRequest(_One, _Tied, _Within):
    """Find everything within `radius` bits, nearest first, at most `limit`."""


class NearestRequest(_One, _Tied, _Nearest):
    """Find the `k` nearest items."""

    @property
    def form(self) -> Literal["code", "item", "input"]:
        """The form of the query."""
        return "code" if self.code is not None else "item" if self.id is not None else "input"


class ProbeRequest(_One, _Probe):
    """Find the most likely items: read `budget` rows, and return at most `limit` of them."""

    logits: Vector | None = Field(None, description="The query as the encoder's real values before the sign.")


class BatchSearchRequest(_Many, _Within):
    """Find everything within `radius` bits of each query, at most `limit` hits each."""

    limit: int = Field(10, ge=1)


class BatchNearestRequest(_Many, _Nearest):
    """Find the `k` nearest items of each query."""

    @property
    def form(self) -> Literal["code", "item", "input"]:
        """The form of the queries."""
        return "code" if self.vectors is None else "input"


class BatchProbeRequest(_Many, _Probe):
    """Find the most likely items of each query: read `budget` rows, and return at most `limit` of them."""

    default_limit = 10

    logits: list[Vector] | None = Field(
        None,
        fail_fast=True,
        min_length=1,
        max_length=MAX_QUERIES,
        description="The queries as the encoder's real values before the sign.",
    )


OneQuery = SearchRequest | NearestRequest | ProbeRequest
ManyQueries = BatchSearchRequest | BatchNearestRequest | BatchProbeRequest
AnySearch = OneQuery | ManyQueries


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


class HitOut(BaseModel):
    """An item that was found."""

    id: int | str
    distance: int = Field(description="Hamming distance to the query.")
    embedding_distance: float | None = None
    code: str | None = None
    codes: list[str] | None = Field(None, description="In place of `code`, for an item with several.")
    payload: dict[str, Any] | None = None


class CostOut(BaseModel):
    """The work of a search."""

    buckets: int = Field(description="Buckets looked up.")
    candidates: int = Field(description="Rows read.")
    comparisons: int = Field(description="Embedding distances computed.")


class Took(BaseModel):
    """Milliseconds."""

    encode_ms: float = Field(description="In the encoder, for the batch with this query.")
    index_ms: float = Field(description="In the index, for the batch with this query.")


class Histogram(BaseModel):
    """Number of items at each distance from the query."""

    counts: list[int] = Field(description="Items at 0, 1, 2, ... bits.")
    rows: int = Field(description="Items that were counted.")
    sampled: bool = Field(description="True if they are a sample of the store.")


class SearchAnswer(BaseModel):
    """Hits of one query, and their cost."""

    code: str = Field(description="Code of the query.")
    embedding: list[float] | None = Field(None, description="Embedding of the query, if hits were ranked by it.")
    radius: int | None = Field(description="Hits lie within so many bits; null: the nearest were asked for.")
    budget: int | None = Field(description="Rows that could be read; null: as many as it took.")
    hits: list[HitOut]
    truncated: bool = Field(description="True if there are as many hits as the limit allows, and perhaps more.")
    cost: CostOut
    took: Took
    histogram: Histogram | None = None


class BatchCosts(BaseModel):
    """The work of each query of a batch; see the cost of one query."""

    buckets: list[int] | str
    candidates: list[int] | str
    comparisons: list[int] | str


class BatchAnswer(BaseModel):
    """Hits of all queries, one after another; those of query q lie from offsets[q] to offsets[q + 1]."""

    offsets: list[int] | str
    ids: list[int | str] | str
    distances: list[int] | str
    embedding_distances: list[float] | str | None = Field(None, description="Present if hits were ranked by them.")
    costs: BatchCosts
    took: Took


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


class ErrorDetail(BaseModel):
    """The reason of a refusal."""

    kind: str
    message: str
    limit: str | None = Field(default=None, description="With `too_much`: what there is too much of.")
    value: float | None = Field(default=None, description="With `too_much`: the most of it.")
    role: str | None = Field(default=None, description="With `role`: the role that the request needs.")


class ErrorAnswer(BaseModel):
    """A refusal."""

    error: ErrorDetail
