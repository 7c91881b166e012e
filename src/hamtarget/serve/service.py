"""The service without its HTTP: what is asked, in order, of the encoder, the index and the store."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.errors import HamtargetError, InputError
from hamtarget.items import Id
from hamtarget.serve.coalescing import Coalescer
from hamtarget.serve.counting import CountingStore, Look
from hamtarget.serve.meters import Meters
from hamtarget.serve.problems import Problem, not_found
from hamtarget.serve.routes import schemas
from hamtarget.serve.routes.reading import from_base64, from_hex
from hamtarget.serve.settings import ServiceSettings
from hamtarget.serve.work import DeleteJob, EncodedInputs, Input, PutJob, SearchJob, SearchOutcome, Work
from hamtarget.store import Item, Range

# Rows that are worked on in one go, at most: what comes meanwhile need not wait long.
_ENCODED_ROWS = 64
_SEARCHED_ROWS = 16_384
_WRITTEN_ROWS = 20_000
_READ_ROWS = 1024
_DRAWN_ROWS = 16
# A picture is a file of its own: a page asks for many at once.
_PICTURES_WAITING = 1024


class Service:
    """A store, and the queues in front of its encoder, its index and its files."""

    def __init__(self, store: CountingStore, settings: ServiceSettings) -> None:
        self.store = store
        self.settings = settings
        self.meters = Meters()
        self.work = Work(store, settings)
        self.is_ready = False
        waiting = settings.max_waiting
        self._encoding: Coalescer[list[Input], EncodedInputs] = Coalescer(
            "encode", self.work.encode, most_rows=_ENCODED_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._searching: Coalescer[SearchJob, SearchOutcome] = Coalescer(
            "search", self.work.search, most_rows=_SEARCHED_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._reading: Coalescer[list[Id], list[Item | None]] = Coalescer(
            "read", self.work.read, most_rows=_READ_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._writing: Coalescer[PutJob | DeleteJob, int] = Coalescer(
            "write", self.work.write, most_rows=_WRITTEN_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._drawing: Coalescer[tuple[object, int], tuple[bytes, str] | None] = Coalescer(
            "draw", self.work.draw, most_rows=_DRAWN_ROWS, most_waiting=_PICTURES_WAITING, meters=self.meters
        )

    async def start(self) -> None:
        """Nothing; the encoder is open and requests can be served."""
        await asyncio.to_thread(self.work.open_encoder)
        self.is_ready = True

    async def drain(self) -> None:
        """Nothing, once everything that was asked is answered."""
        self.is_ready = False
        for queue in (self._encoding, self._searching, self._reading, self._writing, self._drawing):
            await queue.drain()

    async def search(
        self, asked: schemas.SearchRequest | schemas.NearestRequest, image: bytes | None
    ) -> tuple[SearchOutcome, SearchJob, float]:
        """Hits of one query with their items, the query itself, and milliseconds in the encoder."""
        look = self._look(asked, 1, rerank=asked.rerank)
        if (asked.payload or asked.codes) and look.limit > self.settings.max_items:
            most = self.settings.max_items
            raise Problem(
                422, "input", f"hits come with payloads or codes {most:,} at a time; ask for fewer, or without"
            )
        code, embedding, ms = await self._query_code(asked, image)
        if asked.rerank and embedding is None:
            raise Problem(422, "input", "rerank is asked, and the query has no embedding; pass one, or an id or input")
        job = SearchJob(
            code,
            look,
            _key(look, asked.filter),
            embedding if asked.rerank else None,
            items=asked.payload or asked.codes,
            histogram=asked.histogram,
        )
        outcome = await self._searching.submit(job)
        self._count(outcome)
        return outcome, job, ms

    async def search_batch(self, asked: schemas.BatchSearchRequest | schemas.BatchNearestRequest) -> SearchOutcome:
        """Hits of many queries."""
        given = [each for each in (asked.codes, asked.codes_base64, asked.vectors) if each is not None]
        if len(given) != 1:
            raise Problem(422, "input", "give one of codes, codes_base64 and vectors")
        if asked.vectors is not None:
            self._check_count(len(asked.vectors))
            look = self._look(asked, len(asked.vectors))
            codes = (await self._encoding.submit(list(asked.vectors), rows=len(asked.vectors))).codes
        else:
            codes = self._codes(asked.codes, asked.codes_base64)
            self._check_count(len(codes))
            look = self._look(asked, len(codes))
        outcome = await self._searching.submit(SearchJob(codes, look, _key(look, asked.filter)), rows=len(codes))
        self._count(outcome)
        return outcome

    async def put(self, items: list[schemas.ItemIn]) -> int:
        """How many items were put; they are on disk."""
        self._check_writable()
        if len(items) > self.settings.max_items:
            raise Problem(
                422, "input", f"there are {len(items):,} items; at most {self.settings.max_items:,} at a time"
            )
        codes = np.empty((len(items), self.store.n_bits // 8), dtype=np.uint8)
        kind = self.store.embeddings
        embeddings: list[Any] = [None] * len(items)
        inputs: list[Input] = []
        places: list[int] = []
        for place, item in enumerate(items):
            if sum(each is not None for each in (item.code, item.vector, item.image)) != 1:
                raise Problem(422, "input", f"item {place}: give one of code, vector and image")
            if item.embedding is not None:
                embeddings[place] = self._embedding(item.embedding)
            if item.code is not None:
                codes[place] = np.frombuffer(from_hex(item.code, self.store.n_bits), dtype=np.uint8)
            else:
                places.append(place)
                inputs.append(from_base64(item.image, name="image") if item.image is not None else item.vector or [])
        for start in range(0, len(inputs), _ENCODED_ROWS):
            part = inputs[start : start + _ENCODED_ROWS]
            made = await self._encoding.submit(part, rows=len(part))
            for row, place in enumerate(places[start : start + _ENCODED_ROWS]):
                codes[place] = made.codes[row]
                if embeddings[place] is None and made.embeddings is not None:
                    embeddings[place] = made.embeddings[row]
        rows: NDArray[Any] | None = None
        if kind is not None:
            missing = next((place for place, each in enumerate(embeddings) if each is None), None)
            if missing is not None:
                raise Problem(
                    422, "input", f"item {missing}: no embedding; this store keeps {kind.n_dims} numbers each"
                )
            rows = np.stack(embeddings)
        job = PutJob([item.id for item in items], codes, rows, [item.payload for item in items])
        return await self._writing.submit(job, rows=len(items))

    async def delete(self, id: Id) -> None:
        """Nothing; the item is gone, on disk too."""
        self._check_writable()
        if await self._writing.submit(DeleteJob(id)) == 0:
            raise not_found("there is no item of this id")

    async def item(self, id: Id) -> Item:
        """The item of an id."""
        (item,) = await self._reading.submit([id])
        if item is None:
            raise not_found("there is no item of this id")
        return item

    async def picture(self, id: Id, side: int) -> tuple[bytes, str]:
        """An item's picture and its media type."""
        item = await self.item(id)
        drawn = await self._drawing.submit(((item.payload or {}).get("image"), side))
        if drawn is None:
            raise not_found("this item has no image in a folder that is served (--images)")
        return drawn

    def has_image(self, item: Item | None) -> bool:
        """Whether there may be a picture of the item."""
        return bool(self.work.pictures) and item is not None and isinstance((item.payload or {}).get("image"), str)

    async def _query_code(
        self, asked: schemas.SearchRequest | schemas.NearestRequest, image: bytes | None
    ) -> tuple[Codes, NDArray[Any] | None, float]:
        """Code and embedding of a query, (1, ...) each, and milliseconds in the encoder."""
        if sum(each is not None for each in (asked.code, asked.vector, asked.image, asked.id, image)) != 1:
            raise Problem(422, "input", "give one of code, vector, image and id")
        embedding = None if asked.embedding is None else self._embedding(asked.embedding)[None]
        if asked.code is not None:
            return np.frombuffer(from_hex(asked.code, self.store.n_bits), dtype=np.uint8)[None], embedding, 0.0
        if asked.id is not None:
            item = await self.item(asked.id)
            stored = None if item.embedding is None else np.asarray(item.embedding)[None]
            return np.asarray(item.code, dtype=np.uint8)[None], stored if embedding is None else embedding, 0.0
        given: Input = asked.vector or image or from_base64(asked.image or "", name="image")
        made = await self._encoding.submit([given])
        return made.codes, made.embeddings if embedding is None else embedding, made.ms

    def _codes(self, texts: list[str] | None, packed: str | None) -> Codes:
        n_bytes = self.store.n_bits // 8
        if packed is not None:
            content = from_base64(packed, name="codes_base64")
            if not content or len(content) % n_bytes:
                raise Problem(422, "input", f"codes_base64 holds {len(content):,} bytes; a code has {n_bytes}")
        else:
            for text in texts or []:
                if len(text) != 2 * n_bytes:
                    from_hex(text, self.store.n_bits)
            content = bytes.fromhex("".join(texts or []))
        return np.frombuffer(content, dtype=np.uint8).reshape(-1, n_bytes)

    def _look(self, asked: Any, n_queries: int, *, rerank: bool = False) -> Look:
        """What is looked for, if that is within the service's limits."""
        within = isinstance(asked, schemas.SearchRequest | schemas.BatchSearchRequest)
        radius = None
        if within:
            radius = self.store.radius if asked.radius is None else asked.radius
            if radius >= self.store.n_bits:
                raise Problem(422, "input", f"radius is {radius}; expected 0 to {self.store.n_bits - 1}")
        limit: int = asked.limit if within else asked.k
        if limit * n_queries > self.settings.max_hits:
            raise Problem(
                422,
                "input",
                f"{n_queries:,} queries of {limit:,} hits may give more than {self.settings.max_hits:,}; ask fewer",
            )
        if rerank and self.store.embeddings is None:
            raise Problem(422, "input", "rerank is asked, and this store keeps no embeddings")
        return Look(radius, limit, limit if rerank else None, _filter(asked.filter))

    def _embedding(self, numbers: list[float]) -> NDArray[Any]:
        kind = self.store.embeddings
        if kind is None:
            raise Problem(422, "input", "an embedding is given; this store keeps none")
        with np.errstate(all="ignore"):
            row = np.array(numbers, dtype=np.float64)
            if kind.dtype == "int8":
                if bool((row != np.rint(row)).any()) or bool((np.abs(row) > 127).any()):
                    raise Problem(422, "input", "the embedding holds other numbers than int8; scale and round it first")
                row = row.astype(np.int8)
            try:
                checked = kind.check(row, n_rows=1, name="embedding")
            except InputError as error:
                raise Problem(422, "input", str(error)) from error
        embedding: NDArray[Any] = checked[0]
        return embedding

    def _check_count(self, n_queries: int) -> None:
        if n_queries > self.settings.max_queries:
            most = self.settings.max_queries
            raise Problem(422, "input", f"there are {n_queries:,} queries; at most {most:,} at a time")

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise Problem(403, "read_only", "this service does not take changes; it was not started with --writable")

    def _count(self, outcome: SearchOutcome) -> None:
        # One entry for a batch, its mean: thousands of them would take longer than the search.
        n_queries = max(1, len(outcome.hits))
        self.meters.candidates.observe(outcome.candidates / n_queries)
        self.meters.comparisons.observe(outcome.comparisons / n_queries)


def packed_array(array: NDArray[Any], kind: str) -> bytes:
    """Whole numbers as base64 of little-endian numbers of this kind, such as "<i8".

    Raises:
        Problem: they are no numbers.
    """
    if array.dtype.kind not in "iu":
        raise Problem(422, "input", 'some ids are strings; ask with "arrays": "json"')
    return base64.b64encode(array.astype(kind, copy=False).tobytes())


def _filter(asked: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        return {
            field: Range(wanted.min, wanted.max) if isinstance(wanted, schemas.Bounds) else wanted
            for field, wanted in (asked or {}).items()
        } or None
    except HamtargetError as error:
        raise Problem(422, "input", str(error)) from error


def _key(look: Look, filter: dict[str, Any] | None) -> str:
    """The same text for what may be searched in one go."""
    if filter is None:
        return f"{look.radius} {look.limit} {look.rerank}"
    asked = {
        field: wanted.model_dump() if isinstance(wanted, schemas.Bounds) else wanted for field, wanted in filter.items()
    }
    return f"{look.radius} {look.limit} {look.rerank} {json.dumps(asked)}"
