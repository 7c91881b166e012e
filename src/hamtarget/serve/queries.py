"""Queries of requests as codes: read, looked up, or encoded in the encoder's lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, check_finite, from_logits
from hamtarget.errors import InputError
from hamtarget.items import Id, Item
from hamtarget.serve.lanes.askers import Asker
from hamtarget.serve.lanes.coalescing import Coalescer
from hamtarget.serve.lanes.jobs import Encoded, EncodeJob, Input, join_encoded
from hamtarget.serve.messages.match_messages import MatchRequest
from hamtarget.serve.messages.search_messages import AnySearch, BatchProbeRequest, ManyQueries, OneQuery, ProbeRequest
from hamtarget.serve.problems import refused
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store

ENCODED_ROWS = 64
"""Rows of one batch of the encoder, at most, so that requests which come meanwhile need not wait long."""

# More numbers than these are converted in the slow lane, not in the event loop.
MANY_ROWS = 64


class Queries:
    """Queries as codes and, as far as they are known, their logits and embeddings."""

    def __init__(
        self,
        store: Store,
        settings: ServiceSettings,
        encoding: Coalescer[EncodeJob, Encoded],
        item_of: Callable[[Id, Asker], Awaitable[Item]],
        slowly: Callable[[Asker, Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        """Read queries for a store.

        Args:
            store: whose codes they are compared with.
            settings: bounds of a request.
            encoding: the encoder's lane.
            item_of: gives the item of an id.
            slowly: does some work in the slow lane.
        """
        self._store = store
        self._settings = settings
        self._encoding = encoding
        self._item_of = item_of
        self._slowly = slowly

    async def of_one(self, asked: OneQuery, asker: Asker) -> Encoded:
        """Return the code of a query and, as far as they are known, its logits and embedding."""
        logits = asked.logits if isinstance(asked, ProbeRequest) else None
        if sum(each is not None for each in (asked.code, asked.vector, asked.image, asked.text, asked.id, logits)) != 1:
            raise refused(f"give one of {_choices(asked, 'code, vector, image, text and id')}")
        embedding = None if asked.embedding is None else self.embedding(asked.embedding)[None]
        if logits is not None:
            return self._from_logits([logits], embedding)
        if asked.code is not None:
            return Encoded(self.codes([asked.code]), embeddings=embedding)
        if asked.id is not None:
            item = await self._item_of(asked.id, asker)
            if item.codes is not None:
                raise refused(f"this item has {len(np.asarray(item.codes))} codes; search by one code, or /v1/match")
            if embedding is None and item.embedding is not None:
                embedding = np.asarray(item.embedding)[None]
            return Encoded(np.asarray(item.code, dtype=np.uint8)[None], embeddings=embedding)
        job = EncodeJob([_input_of(asked)], asker.holding)
        made = await self._encoding.submit(job, client=asker.client)
        return made if embedding is None else replace(made, embeddings=embedding)

    async def of_many(self, asked: ManyQueries, asker: Asker) -> Encoded:
        """Return the codes of many queries and, as far as they are known, their logits and embeddings."""
        logits = asked.logits if isinstance(asked, BatchProbeRequest) else None
        given = [
            each for each in (asked.codes, asked.codes_base64, asked.vectors, asked.texts, logits) if each is not None
        ]
        if len(given) != 1:
            raise refused(f"give one of {_choices(asked, 'codes, codes_base64, vectors and texts')}")
        n_queries = (
            len(given[0]) if asked.codes_base64 is None else len(asked.codes_base64) // (self._store.n_bits // 8)
        )
        if n_queries > self._settings.max_queries:
            most = self._settings.max_queries
            raise refused(f"there are {n_queries:,} queries; send at most {most:,} at a time")
        self.check_hits(asked, n_queries)
        embeddings = None
        if asked.embedding is not None:
            if len(asked.embedding) != n_queries:
                raise refused(f"there are {len(asked.embedding):,} embeddings for {n_queries:,} queries; send one each")
            stack = partial(self._stacked, asked.embedding)
            embeddings = stack() if n_queries <= MANY_ROWS else await self._slowly(asker, stack)
        if logits is not None:
            convert = partial(self._from_logits, logits, embeddings)
            return convert() if n_queries <= MANY_ROWS else await self._slowly(asker, convert)
        inputs = asked.vectors if asked.vectors is not None else asked.texts
        if inputs is not None:
            made = await self._encoded(inputs, asker)
            return made if embeddings is None else replace(made, embeddings=embeddings)
        if asked.codes is not None:
            return Encoded(self.codes(asked.codes), embeddings=embeddings)
        packed = asked.codes_base64 or b""
        n_bytes = self._store.n_bits // 8
        if not packed or len(packed) % n_bytes:
            raise refused(f"codes_base64 holds {len(packed):,} bytes; expected a multiple of {n_bytes}, one code each")
        return Encoded(np.frombuffer(packed, dtype=np.uint8).reshape(-1, n_bytes), embeddings=embeddings)

    async def of_match(self, asked: MatchRequest, asker: Asker) -> Encoded:
        """Return the codes of the query of a match."""
        given = (asked.codes, asked.vectors, asked.images, asked.texts, asked.id)
        if sum(each is not None for each in given) != 1:
            raise refused("give one of codes, vectors, images, texts and id")
        if asked.codes is not None:
            return Encoded(self.codes(asked.codes))
        if asked.id is not None:
            item = await self._item_of(asked.id, asker)
            return Encoded(np.asarray([item.code] if item.codes is None else item.codes, dtype=np.uint8))
        if asked.images is not None:
            # An image takes long to decode: each is a job, so that others can come between.
            jobs = (EncodeJob([image], asker.holding) for image in asked.images)
            return join_encoded(
                await asyncio.gather(*(self._encoding.submit(job, client=asker.client) for job in jobs))
            )
        return await self._encoded(asked.vectors or asked.texts or [], asker)

    async def _encoded(self, inputs: Sequence[Input], asker: Asker) -> Encoded:
        """Encode vectors or texts, a few at a time, so that others' can come between."""
        parts = []
        for start in range(0, len(inputs), ENCODED_ROWS):
            part = EncodeJob(list(inputs[start : start + ENCODED_ROWS]))
            parts.append(await self._encoding.submit(part, rows=len(part.inputs), client=asker.client))
        return join_encoded(parts)

    def _stacked(self, rows: list[list[float]]) -> NDArray[Any]:
        return np.stack([self.embedding(row) for row in rows])

    def codes(self, texts: list[str]) -> Codes:
        """Return hexadecimal digits as codes."""
        n_bits = self._store.n_bits
        for text in texts:
            if len(text) * 4 != n_bits:
                raise refused(
                    f"the code has {len(text)} hexadecimal digits; expected {n_bits // 4}, for codes of {n_bits} bits"
                )
        return np.frombuffer(bytes.fromhex("".join(texts)), dtype=np.uint8).reshape(-1, n_bits // 8)

    def _from_logits(self, rows: list[list[float]], embeddings: NDArray[Any] | None) -> Encoded:
        for row in rows:
            if len(row) != self._store.n_bits:
                raise refused(f"there are {len(row)} logits; expected {self._store.n_bits}, one for each bit")
        with np.errstate(over="ignore"):
            logits = np.array(rows, dtype=np.float32)
        check_finite(logits, name="logits")
        return Encoded(from_logits(logits), logits, embeddings)

    def embedding(self, numbers: list[float]) -> NDArray[Any]:
        """Return an embedding as the store keeps them."""
        kind = self._store.embeddings
        if kind is None:
            raise refused("an embedding is given; this store keeps none")
        with np.errstate(all="ignore"):
            row = np.array(numbers, dtype=np.float64)
            if kind.dtype == "int8":
                if bool((row != np.rint(row)).any()) or bool((np.abs(row) > 127).any()):
                    raise refused("the embedding holds numbers that are not int8; scale and round it first")
                row = row.astype(np.int8)
            try:
                checked = kind.check(row, n_rows=1, name="embedding")
            except InputError as error:
                raise refused(str(error)) from error
        embedding: NDArray[Any] = checked[0]
        return embedding

    def check_hits(self, asked: AnySearch, n_queries: int) -> None:
        """Refuse queries that may give more hits than the service returns."""
        most = self._settings.max_hits
        if asked.most_hits * n_queries > most:
            raise refused(
                f"{n_queries:,} {'query' if n_queries == 1 else 'queries'} of up to {asked.most_hits:,} hits may give "
                f"more than {most:,}; ask for fewer"
            )


def _input_of(given: OneQuery) -> Input:
    """Return what the encoder is to take: the image, text or vector."""
    if given.image is not None:
        return given.image
    return given.text if given.text is not None else given.vector or []


def _choices(asked: AnySearch, names: str) -> str:
    """Return the names of the fields that can be a query of this request."""
    return f"logits, {names}" if asked.kind == "probe" else names
