"""A client for threads: its calls wait for the answer."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, Self, TypeVar

from hamtarget.client.connections import Connections
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
from hamtarget.client.trying import Patience, Tries
from hamtarget.errors import ServiceError
from hamtarget.items import Id, Item

T = TypeVar("T")


class Client:
    """A client of a service, for any number of threads; connections are kept open between calls.

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
        self._connections = Connections(read_address(address, token, ca_file), connections)
        self._address = address

    def __repr__(self) -> str:
        return f"Client({self._address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        self._connections.close()

    def within(self, seconds: float) -> Self:
        """Return a client whose calls take at most so many seconds in all; it shares this one's connections."""
        other = copy.copy(self)
        other._patience = replace(self._patience, seconds=seconds)
        return other

    def search(
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
        """Find every item within `radius` bits of a query, nearest first, or the first `limit` of them.

        Args:
            query: an image (the path of a file, or its bytes), a text (a string that is no such path), or a vector; or
                else
            code: bytes, hexadecimal digits, or a row of uint8; or else
            id: an item of the store.
            radius: the store's own by default.
            limit: most hits; the service's default, 50.
            filter: the value, or the `Range` of values, of each named top-level field of the payload.
            rerank: so many of the hits (after `limit`), the closest by embedding.
            embedding: of the query, for `rerank`; that of the encoder or of the item by default.
            payload: True if hits come with their payloads.
            codes: True if hits come with their codes.
            ties: order of hits at equal distance: "stored", as the store keeps them, the default; or "mixed", by
                embedding where there is one, else by a hash of the id.

        Raises:
            InputError: not exactly one of query, code and id is given, or one of them is of another kind.
            ServiceError: the service refused, failed or did not answer.
            BusyError: it has too much to do; try again after `retry_after` seconds.
        """
        asked = one_query(query, code, id, embedding, payload, codes)
        return self._do(
            hits_call(
                "/v1/search", {**asked, "radius": radius, "limit": limit, "ties": ties, **ranking(filter, rerank)}
            )
        )

    def search_batch(
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
        """Find every item within `radius` bits of each of many vectors or codes; see `search`.

        Args:
            queries: vectors, or texts; or else
            codes: codes.
            radius: as in `search`.
            limit: most hits for each query; the service's default, 10.
            filter: as in `search`.
            rerank: as in `search`, for each query.
            embedding: of the queries, a row each.

        Raises:
            As `search`.
        """
        asked = many_queries(queries, codes, embedding)
        return self._do(
            batch_call("/v1/search/batch", {**asked, "radius": radius, "limit": limit, **ranking(filter, rerank)})
        )

    def match(
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
        """Find the items that match a query of several codes, such as the frames of a video: k of n of its codes.

        A code of the query is matched by an item if at least one code of the item lies within `radius` bits of it. k
        counts these codes of the query, and n is how many it has: an item is found if k is `at_least` or more.

        Args:
            inputs: 1 to 64 images (paths of files, or their bytes), texts or vectors, all of one query; or else
            codes: 1 to 64 codes, each as in `search`; or else
            id: an item of the store, whose codes are those of the query.
            radius: the store's own by default.
            at_least: fewest codes of the query that an item must match.
            limit: most items; the service's default, 50.
            filter: as in `search`.
            payload: True if matches come with their payloads.

        Raises:
            As `search`.
        """
        asked = {**match_query(inputs, codes, id), "radius": radius, "at_least": at_least, "limit": limit}
        wanted = {"filter": ranking(filter, None)["filter"], "payload": payload}
        return self._do(match_call({**asked, **wanted}))

    def nearest(
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
        """Find the `k` nearest items; see `Store.nearest`.

        Args:
            query: as in `search`; so are the others that are not named here.
            k: number of items.
            recall: where the store keeps vectors, share of the true nearest to find; 0.95 by default, and 1 compares
                all vectors.
            code: as in `search`.
            id: as in `search`.
            filter: as in `search`.
            rerank: as in `search`.
            embedding: as in `search`.
            payload: as in `search`.
            codes: as in `search`.
            ties: as in `search`.
        """
        asked = one_query(query, code, id, embedding, payload, codes)
        bounds = {"k": k, "recall": recall, "ties": ties}
        return self._do(hits_call("/v1/nearest", {**asked, **bounds, **ranking(filter, rerank)}))

    def nearest_batch(
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
        """Find the `k` nearest items of each of many vectors or codes; see `nearest` and `search_batch`."""
        asked = many_queries(queries, codes, embedding)
        content = {**asked, "k": k, "recall": recall, **ranking(filter, rerank)}
        return self._do(batch_call("/v1/nearest/batch", content))

    def probe(
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
        """Search approximately: read at most `budget` rows, the most likely first.

        Args:
            query: as in `search`; or else
            logits: the query as the encoder's real values before the sign; or else
            code: as in `search`; every bit counts alike then.
            id: as in `search`.
            budget: most rows read; the service's default grows with the store.
            radius: hits lie within so many bits; every row that is read is a hit by default.
            limit: most hits before they are ranked; the service's default, 50, without `rerank`.
            filter: as in `search`.
            rerank: as in `search`; a store without embeddings ranks by the query's logits.
            embedding: as in `search`.
            comparisons: most embeddings compared, with `rerank`.
            payload: as in `search`.
            codes: as in `search`.

        Raises:
            As `search`.
        """
        asked = one_query(query, code, id, embedding, payload, codes, logits)
        how = {"budget": budget, "radius": radius, "limit": limit, "comparisons": comparisons}
        return self._do(hits_call("/v1/probe", {**asked, **how, **ranking(filter, rerank)}))

    def probe_batch(
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
        """Search approximately for each of many queries; see `probe` and `search_batch`."""
        asked = many_queries(queries, codes, embedding, logits)
        how = {"budget": budget, "radius": radius, "limit": limit, "comparisons": comparisons}
        return self._do(batch_call("/v1/probe/batch", {**asked, **how, **ranking(filter, rerank)}))

    def groups(
        self,
        radius: int | None = None,
        *,
        linkage: Literal["single", "representative"] = "single",
        limit: int = 50,
        after: int | None = None,
        members: int = 100,
        payload: bool = True,
    ) -> ServedGroups:
        """Return groups of near duplicates, largest first; see `Store.groups`.

        Args:
            radius: the store's own by default, and at most that.
            linkage: "single" or "representative".
            limit: most groups of the page.
            after: `next` of the page before.
            members: most members of each group.
            payload: True if members come with their payloads.

        Raises:
            ServiceError: as in `search`.
            BusyError: among others while groups are made for the first time, which may take longer than all tries:
                call again after `retry_after` seconds.
        """
        page = {"limit": limit, "after": after, "members": members, "payload": payload}
        return self._do(groups_call({"radius": radius, "linkage": linkage, **page}))

    def group_members(
        self,
        group: int,
        radius: int | None = None,
        *,
        linkage: Literal["single", "representative"] = "single",
        start: int = 0,
        limit: int = 100,
        payload: bool = True,
    ) -> tuple[ServedMember, ...]:
        """Return members of a group, the representative first, then those nearest to it; see `Store.group_members`.

        Args:
            group: its id, as `groups` with this radius and linkage gave it.
            radius: as in `groups`.
            linkage: as in `groups`.
            start: number of members to skip.
            limit: most members to return.
            payload: as in `groups`.
        """
        page = {"start": start, "limit": limit, "payload": payload}
        return self._do(group_members_call({"group": group, "radius": radius, "linkage": linkage, **page}))

    def put(self, items: Iterable[Item]) -> int:
        """Put items, in place of those with the same ids, and return their number.

        On return they are on the service's disk, all of them or none.

        Raises:
            InputError: an item has not exactly one of input and code.
            ServiceError: as in `search`; `status` is 403 where the service takes no changes.
        """
        call = put_call(items)
        return 0 if call is None else self._do(call)

    def delete(self, id: Id) -> None:
        """Delete an item.

        Raises:
            ServiceError: there is no item of this id (`status` 404), or the service takes no changes (403).
        """
        self._do(delete_call(id))

    def get(self, id: Id) -> Item | None:
        """Return the item of an id, its code as bytes; None where there is none."""
        return self._do(get_call(id))

    def picture(self, id: Id, size: int = 256) -> bytes:
        """Return an item's picture, a PNG or JPEG at most `size` pixels wide and high."""
        return self._do(picture_call(id, size))

    def stats(self) -> dict[str, Any]:
        """Return what the service holds and can do, as `GET /v1/stats` tells it."""
        return self._do(stats_call())

    def map(self, n: int = 2000) -> dict[str, Any]:
        """Return `n` items, drawn at random, as points of a plane, as `GET /v1/map` tells it."""
        return self._do(map_call(n))

    def is_ready(self) -> bool:
        """Return True if the service takes requests; asks once."""
        try:
            return self._do(ready_call(), replace(self._patience, retries=0))
        except ServiceError:
            return False

    def _do(self, call: Call[T], patience: Patience | None = None) -> T:
        tries = Tries(call, patience or self._patience)
        while True:
            outcome = self._connections.exchange(call, lambda: tries.seconds_left)
            pause = tries.pause_after(outcome)
            if pause is None:
                return tries.result(outcome)
            time.sleep(pause)
