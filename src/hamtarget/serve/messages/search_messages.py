"""Requests and answers of searches, as JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from hamtarget.filters import Filter
from hamtarget.serve.messages.fields import (
    MAX_QUERIES,
    Base64,
    HexCode,
    ItemId,
    Message,
    PayloadFilter,
    Text,
    Vector,
    library_filter,
)

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
