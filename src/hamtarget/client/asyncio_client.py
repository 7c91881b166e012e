"""A client for asyncio."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, Self, TypeVar

from hamtarget.client.messages import (
    Call,
    Code,
    Filter,
    Query,
    Ties,
    batch_call,
    delete_call,
    get_call,
    group_members_call,
    groups_call,
    hits_call,
    many_queries,
    map_call,
    match_call,
    match_query,
    one_query,
    picture_call,
    put_call,
    ranking,
    ready_call,
    stats_call,
)
from hamtarget.client.results import ServedBatch, ServedGroups, ServedHits, ServedMatch, ServedMember
from hamtarget.client.service_address import read_address
from hamtarget.client.streams import Streams
from hamtarget.client.trying import Patience, Tries
from hamtarget.errors import ServiceError
from hamtarget.items import Id, Item

T = TypeVar("T")


class AsyncClient:
    """A client of a service for asyncio: the calls of `Client`, to be awaited, in one event loop.

    Any number of calls may be under way at a time. A call that is cancelled closes its connection, and the service
    stops working on it.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            hits = await client.search("shoe.jpg", radius=4)

    Args:
        address: address of the service, such as "http://127.0.0.1:8080" or "https://search.example.org".
        token: the service's token, if it wants one.
        timeout: seconds that a call may take in all; see `within`.
        retries: tries after the first one, where a service is busy or the connection fails. A `put` or `delete` is
            tried again only if the service has certainly not acted on it.
        retry_changes: if True, a `put` or `delete` whose answer was lost is sent again, too. Doing it twice leaves the
            same items, unless somebody else changed them in between.
        connections: most connections at a time; further calls wait for one.
        ca_file: certificates (PEM) that the service's is checked against; those of the system by default.

    Raises:
        InputError: the address is not one of HTTP, or another argument is not what it should be.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        retry_changes: bool = False,
        connections: int = 8,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._patience = Patience(timeout, retries, retry_changes, connections)
        self._streams = Streams(read_address(address, token, ca_file), connections)
        self._address = address

    def __repr__(self) -> str:
        return f"AsyncClient({self._address!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next call opens one again."""
        await self._streams.close()

    def within(self, seconds: float) -> Self:
        """Return a client whose calls take at most so many seconds in all; it shares this one's connections."""
        other = copy.copy(self)
        other._patience = replace(self._patience, seconds=seconds)
        return other

    async def search(
        self,
        query: Query | None = None,
        radius: int | None = None,
        *,
        code: Code | None = None,
        id: Id | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[float] | None = None,
        payload: bool = True,
        codes: bool = False,
        ties: Ties | None = None,
    ) -> ServedHits:
        """Find every item within `radius` bits of a query; see `Client.search`."""
        asked = one_query(query, code, id, embedding, payload, codes)
        return await self._do(
            hits_call(
                "/v1/search", {**asked, "radius": radius, "limit": limit, "ties": ties, **ranking(filter, rerank)}
            )
        )

    async def search_batch(
        self,
        queries: Iterable[Iterable[float]] | Iterable[str] | None = None,
        radius: int | None = None,
        *,
        codes: Iterable[Code] | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[Iterable[float]] | None = None,
    ) -> ServedBatch:
        """Find every item within `radius` bits of each of many queries; see `Client.search_batch`."""
        asked = many_queries(queries, codes, embedding)
        return await self._do(
            batch_call("/v1/search/batch", {**asked, "radius": radius, "limit": limit, **ranking(filter, rerank)})
        )

    async def match(
        self,
        inputs: Iterable[Query] | None = None,
        radius: int | None = None,
        *,
        codes: Iterable[Code] | None = None,
        id: Id | None = None,
        at_least: int = 1,
        limit: int | None = None,
        filter: Filter | None = None,
        payload: bool = True,
    ) -> tuple[ServedMatch, ...]:
        """Find the items that match a query of several codes; see `Client.match`."""
        asked = {**match_query(inputs, codes, id), "radius": radius, "at_least": at_least, "limit": limit}
        wanted = {"filter": ranking(filter, None)["filter"], "payload": payload}
        return await self._do(match_call({**asked, **wanted}))

    async def nearest(
        self,
        query: Query | None = None,
        k: int = 10,
        *,
        code: Code | None = None,
        id: Id | None = None,
        recall: float | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[float] | None = None,
        payload: bool = True,
        codes: bool = False,
        ties: Ties | None = None,
    ) -> ServedHits:
        """Find the `k` nearest items; see `Client.nearest`."""
        asked = one_query(query, code, id, embedding, payload, codes)
        bounds = {"k": k, "recall": recall, "ties": ties}
        return await self._do(hits_call("/v1/nearest", {**asked, **bounds, **ranking(filter, rerank)}))

    async def nearest_batch(
        self,
        queries: Iterable[Iterable[float]] | Iterable[str] | None = None,
        k: int = 10,
        *,
        codes: Iterable[Code] | None = None,
        recall: float | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[Iterable[float]] | None = None,
    ) -> ServedBatch:
        """Find the `k` nearest items of each of many queries; see `Client.nearest_batch`."""
        asked = many_queries(queries, codes, embedding)
        content = {**asked, "k": k, "recall": recall, **ranking(filter, rerank)}
        return await self._do(batch_call("/v1/nearest/batch", content))

    async def probe(
        self,
        query: Query | None = None,
        budget: int | None = None,
        *,
        logits: Iterable[float] | None = None,
        code: Code | None = None,
        id: Id | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[float] | None = None,
        comparisons: int | None = None,
        payload: bool = True,
        codes: bool = False,
    ) -> ServedHits:
        """Search approximately, at most `budget` rows; see `Client.probe`."""
        asked = one_query(query, code, id, embedding, payload, codes, logits)
        how = {"budget": budget, "radius": radius, "limit": limit, "comparisons": comparisons}
        return await self._do(hits_call("/v1/probe", {**asked, **how, **ranking(filter, rerank)}))

    async def probe_batch(
        self,
        queries: Iterable[Iterable[float]] | Iterable[str] | None = None,
        budget: int | None = None,
        *,
        logits: Iterable[Iterable[float]] | None = None,
        codes: Iterable[Code] | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[Iterable[float]] | None = None,
        comparisons: int | None = None,
    ) -> ServedBatch:
        """Search approximately for each of many queries; see `Client.probe_batch`."""
        asked = many_queries(queries, codes, embedding, logits)
        how = {"budget": budget, "radius": radius, "limit": limit, "comparisons": comparisons}
        return await self._do(batch_call("/v1/probe/batch", {**asked, **how, **ranking(filter, rerank)}))

    async def groups(
        self,
        radius: int | None = None,
        *,
        linkage: Literal["single", "representative"] = "single",
        limit: int = 50,
        after: int | None = None,
        members: int = 100,
        payload: bool = True,
    ) -> ServedGroups:
        """Return groups of near duplicates, largest first; see `Client.groups`."""
        page = {"limit": limit, "after": after, "members": members, "payload": payload}
        return await self._do(groups_call({"radius": radius, "linkage": linkage, **page}))

    async def group_members(
        self,
        group: int,
        radius: int | None = None,
        *,
        linkage: Literal["single", "representative"] = "single",
        start: int = 0,
        limit: int = 100,
        payload: bool = True,
    ) -> tuple[ServedMember, ...]:
        """Return members of a group; see `Client.group_members`."""
        page = {"start": start, "limit": limit, "payload": payload}
        return await self._do(group_members_call({"group": group, "radius": radius, "linkage": linkage, **page}))

    async def put(self, items: Iterable[Item]) -> int:
        """Put items, in place of those with the same ids, and return their number; see `Client.put`."""
        call = put_call(items)
        return 0 if call is None else await self._do(call)

    async def delete(self, id: Id) -> None:
        """Delete an item; see `Client.delete`."""
        await self._do(delete_call(id))

    async def get(self, id: Id) -> Item | None:
        """Return the item of an id, its code as bytes; None where there is none."""
        return await self._do(get_call(id))

    async def picture(self, id: Id, size: int = 256) -> bytes:
        """Return an item's picture, a PNG or JPEG at most `size` pixels wide and high."""
        return await self._do(picture_call(id, size))

    async def stats(self) -> dict[str, Any]:
        """Return what the service holds and can do, as `GET /v1/stats` tells it."""
        return await self._do(stats_call())

    async def map(self, n: int = 2000) -> dict[str, Any]:
        """Return `n` items, drawn at random, as points of a plane, as `GET /v1/map` tells it."""
        return await self._do(map_call(n))

    async def is_ready(self) -> bool:
        """Return True if the service takes requests; asks once."""
        try:
            return await self._do(ready_call(), replace(self._patience, retries=0))
        except ServiceError:
            return False

    async def _do(self, call: Call[T], patience: Patience | None = None) -> T:
        tries = Tries(call, patience or self._patience)
        while True:
            outcome = await self._streams.exchange(call, lambda: tries.seconds_left)
            pause = tries.pause_after(outcome)
            if pause is None:
                return tries.result(outcome)
            await asyncio.sleep(pause)
