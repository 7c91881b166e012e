"""The service without its HTTP: it passes requests, in order, to the encoder, the index and the store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, check_finite, from_logits
from hamtarget.errors import InputError
from hamtarget.items import Id, Item
from hamtarget.serve import messages
from hamtarget.serve.coalescing import Coalescer
from hamtarget.serve.memory import MemoryAccount
from hamtarget.serve.meters import Meters
from hamtarget.serve.pictures import Picture
from hamtarget.serve.problems import Problem, not_found
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.serve.work import DeleteJob, Encoded, Found, Input, PictureJob, PutJob, SearchJob, Work
from hamtarget.store import Store
from hamtarget.store.probe_defaults import probing_defaults

# Rows of one batch, at most, so that requests which come meanwhile need not wait long.
_ENCODED_ROWS = 64
_SEARCHED_ROWS = 16_384
_WRITTEN_ROWS = 20_000
_READ_ROWS = 1024
_DRAWN_ROWS = 16
# Each picture is a request of its own, and a page asks for many at once.
_PICTURES_WAITING = 1024


class Service:
    """A store, and the queues in front of its encoder, its index and its files."""

    def __init__(self, store: Store, settings: ServiceSettings) -> None:
        self.store = store
        self.settings = settings
        self.meters = Meters()
        self.memory = MemoryAccount(settings.max_held_bytes, settings.max_request_bytes)
        self.work = Work(store, settings, self.meters)
        self.is_ready = False
        waiting = settings.max_waiting
        self._encoding: Coalescer[list[Input], Encoded] = Coalescer(
            "encode", self.work.encode, most_rows=_ENCODED_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._searching: Coalescer[SearchJob, Found] = Coalescer(
            "search", self.work.search, most_rows=_SEARCHED_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._reading: Coalescer[list[Id], list[Item | None]] = Coalescer(
            "read", self.work.read, most_rows=_READ_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._writing: Coalescer[PutJob | DeleteJob, int] = Coalescer(
            "write", self.work.write, most_rows=_WRITTEN_ROWS, most_waiting=waiting, meters=self.meters
        )
        self._drawing: Coalescer[PictureJob, Picture | None] = Coalescer(
            "draw", self.work.draw, most_rows=_DRAWN_ROWS, most_waiting=_PICTURES_WAITING, meters=self.meters
        )

    async def start(self) -> None:
        """Open the encoder and take requests."""
        await asyncio.to_thread(self.work.open_encoder)
        self.is_ready = True

    async def drain(self) -> None:
        """Take no more requests, and wait until all that were taken are answered."""
        self.is_ready = False
        for queue in (self._encoding, self._searching, self._reading, self._writing, self._drawing):
            await queue.drain()

    async def search(self, asked: messages.OneQuery) -> Found:
        """Search for one query, and return its hits with their items."""
        if bounds := await self._open_bounds(asked):
            asked = asked.model_copy(update=bounds)
        self._check_hits(asked, 1)
        if (asked.payload or asked.codes) and asked.most_hits > self.settings.max_items:
            most = self.settings.max_items
            raise _refused(f"hits come with payloads or codes {most:,} at a time; ask for fewer, or without")
        query = await self._query(asked)
        return await self._searching.submit(SearchJob(asked, query))

    async def search_batch(self, asked: messages.ManyQueries) -> Found:
        """Search for many queries, and return their hits."""
        if bounds := await self._open_bounds(asked):
            asked = asked.model_copy(update=bounds)
        queries = await self._queries(asked)
        return await self._searching.submit(SearchJob(asked, queries), rows=len(queries.codes))

    async def put(self, items: list[messages.ItemIn]) -> int:
        """Put items, all or none; return their number once they are on disk."""
        self._check_writable()
        if len(items) > self.settings.max_items:
            raise _refused(f"there are {len(items):,} items; send at most {self.settings.max_items:,} at a time")
        codes = np.empty((len(items), self.store.n_bits // 8), dtype=np.uint8)
        embeddings: list[Any] = [None] * len(items)
        inputs: list[Input] = []
        places: list[int] = []
        for place, item in enumerate(items):
            if sum(each is not None for each in (item.code, item.vector, item.image)) != 1:
                raise _refused(f"item {place}: give one of code, vector and image")
            if item.embedding is not None:
                embeddings[place] = self._embedding(item.embedding)
            if item.code is not None:
                codes[place] = self._codes([item.code])[0]
            else:
                places.append(place)
                inputs.append(item.image if item.image is not None else item.vector or [])
        for start in range(0, len(inputs), _ENCODED_ROWS):
            part = inputs[start : start + _ENCODED_ROWS]
            made = await self._encoding.submit(part, rows=len(part))
            for row, place in enumerate(places[start : start + _ENCODED_ROWS]):
                codes[place] = made.codes[row]
                if embeddings[place] is None and made.embeddings is not None:
                    embeddings[place] = made.embeddings[row]
        rows: NDArray[Any] | None = None
        kind = self.store.embeddings
        if kind is not None:
            missing = next((place for place, each in enumerate(embeddings) if each is None), None)
            if missing is not None:
                raise _refused(f"item {missing} has no embedding; this store keeps {kind.n_dims} numbers for each item")
            rows = np.stack(embeddings)
        job = PutJob([item.id for item in items], codes, rows, [item.payload for item in items])
        return await self._writing.submit(job, rows=len(items))

    async def delete(self, id: Id) -> None:
        """Delete an item; it is gone from the disk, too, on return."""
        self._check_writable()
        if await self._writing.submit(DeleteJob(id)) == 0:
            raise not_found("there is no item of this id")

    async def item(self, id: Id) -> Item:
        """Return the item of an id."""
        (item,) = await self._reading.submit([id])
        if item is None:
            raise not_found("there is no item of this id")
        return item

    async def picture(self, id: Id, side: int) -> Picture:
        """Return an item's picture, at most `side` pixels wide and high."""
        item = await self.item(id)
        drawn = await self._drawing.submit(PictureJob((item.payload or {}).get("image"), side))
        if drawn is None:
            raise not_found("this item has no image in a folder that is served (--images)")
        return drawn

    def has_image(self, item: Item) -> bool:
        """Return True if the item may have a picture."""
        return bool(self.work.pictures) and isinstance((item.payload or {}).get("image"), str)

    async def _open_bounds(self, asked: messages.AnySearch) -> dict[str, int]:
        """Return the store's radius and budget as far as a request leaves them open."""
        if isinstance(asked, messages.SearchRequest | messages.BatchSearchRequest):
            return {} if asked.radius is not None else {"radius": self.store.radius}
        if isinstance(asked, messages.NearestRequest | messages.BatchNearestRequest):
            return {}
        if asked.radius is not None and asked.budget is not None:
            return {}
        usual = await asyncio.to_thread(probing_defaults, self.store)
        radius = usual.radius if asked.radius is None else asked.radius
        return {"radius": radius, "budget": asked.budget or usual.budget}

    async def _query(self, asked: messages.OneQuery) -> Encoded:
        """Return the code of a query and, as far as they are known, its logits and embedding."""
        logits = asked.logits if isinstance(asked, messages.ProbeRequest) else None
        if sum(each is not None for each in (asked.code, asked.vector, asked.image, asked.id, logits)) != 1:
            raise _refused(f"give one of {_choices(asked, 'code, vector, image and id')}")
        embedding = None if asked.embedding is None else self._embedding(asked.embedding)[None]
        if logits is not None:
            return self._from_logits([logits], embedding)
        if asked.code is not None:
            return Encoded(self._codes([asked.code]), embeddings=embedding)
        if asked.id is not None:
            item = await self.item(asked.id)
            if embedding is None and item.embedding is not None:
                embedding = np.asarray(item.embedding)[None]
            return Encoded(np.asarray(item.code, dtype=np.uint8)[None], embeddings=embedding)
        made = await self._encoding.submit([asked.image if asked.image is not None else asked.vector or []])
        return made if embedding is None else replace(made, embeddings=embedding)

    async def _queries(self, asked: messages.ManyQueries) -> Encoded:
        """Return the codes of many queries and, as far as they are known, their logits and embeddings."""
        logits = asked.logits if isinstance(asked, messages.BatchProbeRequest) else None
        given = [each for each in (asked.codes, asked.codes_base64, asked.vectors, logits) if each is not None]
        if len(given) != 1:
            raise _refused(f"give one of {_choices(asked, 'codes, codes_base64 and vectors')}")
        n_queries = len(given[0]) if asked.codes_base64 is None else len(asked.codes_base64) // (self.store.n_bits // 8)
        if n_queries > self.settings.max_queries:
            most = self.settings.max_queries
            raise _refused(f"there are {n_queries:,} queries; send at most {most:,} at a time")
        self._check_hits(asked, n_queries)
        embeddings = None
        if asked.embedding is not None:
            if len(asked.embedding) != n_queries:
                raise _refused(
                    f"there are {len(asked.embedding):,} embeddings for {n_queries:,} queries; send one each"
                )
            embeddings = np.stack([self._embedding(row) for row in asked.embedding])
        if logits is not None:
            return self._from_logits(logits, embeddings)
        if asked.vectors is not None:
            made = await self._encoding.submit(list(asked.vectors), rows=len(asked.vectors))
            return made if embeddings is None else replace(made, embeddings=embeddings)
        if asked.codes is not None:
            return Encoded(self._codes(asked.codes), embeddings=embeddings)
        packed = asked.codes_base64 or b""
        n_bytes = self.store.n_bits // 8
        if not packed or len(packed) % n_bytes:
            raise _refused(f"codes_base64 holds {len(packed):,} bytes; expected a multiple of {n_bytes}, one code each")
        return Encoded(np.frombuffer(packed, dtype=np.uint8).reshape(-1, n_bytes), embeddings=embeddings)

    def _codes(self, texts: list[str]) -> Codes:
        n_bits = self.store.n_bits
        for text in texts:
            if len(text) * 4 != n_bits:
                raise _refused(
                    f"the code has {len(text)} hexadecimal digits; expected {n_bits // 4}, for codes of {n_bits} bits"
                )
        return np.frombuffer(bytes.fromhex("".join(texts)), dtype=np.uint8).reshape(-1, n_bits // 8)

    def _from_logits(self, rows: list[list[float]], embeddings: NDArray[Any] | None) -> Encoded:
        for row in rows:
            if len(row) != self.store.n_bits:
                raise _refused(f"there are {len(row)} logits; expected {self.store.n_bits}, one for each bit")
        with np.errstate(over="ignore"):
            logits = np.array(rows, dtype=np.float32)
        check_finite(logits, name="logits")
        return Encoded(from_logits(logits), logits, embeddings)

    def _embedding(self, numbers: list[float]) -> NDArray[Any]:
        kind = self.store.embeddings
        if kind is None:
            raise _refused("an embedding is given; this store keeps none")
        with np.errstate(all="ignore"):
            row = np.array(numbers, dtype=np.float64)
            if kind.dtype == "int8":
                if bool((row != np.rint(row)).any()) or bool((np.abs(row) > 127).any()):
                    raise _refused("the embedding holds numbers that are not int8; scale and round it first")
                row = row.astype(np.int8)
            try:
                checked = kind.check(row, n_rows=1, name="embedding")
            except InputError as error:
                raise _refused(str(error)) from error
        embedding: NDArray[Any] = checked[0]
        return embedding

    def _check_hits(self, asked: messages.AnySearch, n_queries: int) -> None:
        most = self.settings.max_hits
        if asked.most_hits * n_queries > most:
            raise _refused(
                f"{n_queries:,} queries of up to {asked.most_hits:,} hits may give more than {most:,}; ask for fewer"
            )

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise Problem(403, "read_only", "this service takes no changes; it was not started with --writable")


def _refused(message: str) -> Problem:
    return Problem(422, "input", message)


def _choices(asked: messages.AnySearch, names: str) -> str:
    """Return the names of the fields that can be a query of this request."""
    return f"logits, {names}" if asked.kind == "probe" else names
