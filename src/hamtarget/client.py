"""A client of `hamtarget serve`; it needs nothing but Python's standard library.

    from hamtarget.client import Client
    from hamtarget.items import Item

    with Client("http://127.0.0.1:8080") as client:
        client.put([Item("shoe-1", "shoe.jpg", payload={"price": 40})])
        for hit in client.search("shoe.jpg", radius=4):
            print(hit.id, hit.distance, hit.payload)

The calls have the names and arguments of `hamtarget.Store`, and their results the same shape. A query is an image (a
path, or the bytes of a file) or a vector; a code is bytes, hexadecimal digits, or a row of uint8.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

from hamtarget.errors import BusyError, DtypeError, InputError, ServiceError
from hamtarget.filters import Range
from hamtarget.items import Id, Item

# Calls return the other types; whoever annotates finds them here all the same.
__all__ = ["Client"]

_Filter = Mapping[str, Any]
_Code = bytes | str | Iterable[int]
_Query = str | os.PathLike[str] | bytes | Iterable[float]


def __dir__() -> list[str]:
    return __all__


class ServedHit(NamedTuple):
    """An item that was found; `code` and `payload` are None unless they were asked for."""

    id: Id
    distance: int
    """Hamming distance to the query."""
    embedding_distance: float | None = None
    """Distance of the embeddings, where hits were re-ranked by it."""
    code: bytes | None = None
    payload: dict[str, Any] | None = None


class _Cost(NamedTuple):
    """Work that one query took: buckets looked up, rows read, embedding distances computed."""

    buckets: int
    candidates: int
    comparisons: int


class ServedHits(tuple[ServedHit, ...]):
    """Hits of one query, a tuple of `ServedHit`, nearest first.

    Attributes:
        cost: the work that the query took: buckets, candidates, comparisons.
        code: the code of the query; empty for a query of a batch.
        truncated: True if there are as many hits as the limit allows, and perhaps more.
        encode_ms: milliseconds in the encoder, for the service's batch with this query.
        index_ms: milliseconds in the index, for the service's batch with this query.
    """

    cost: _Cost
    code: bytes = b""
    truncated: bool = False
    encode_ms: float = 0.0
    index_ms: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ServedBatch:
    """Hits of a batch of queries: `batch[q]` are those of query q, nearest first.

    The lists hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: queries + 1 numbers.
        ids: ids of all hits.
        distances: Hamming distances of all hits.
        embedding_distances: distances of the embeddings, if the hits were re-ranked; they are then ordered by it.
        costs: the work of each query: buckets, candidates, comparisons.
        encode_ms: milliseconds in the encoder.
        index_ms: milliseconds in the index.
    """

    offsets: list[int]
    ids: list[Id]
    distances: list[int]
    embedding_distances: list[float] | None
    costs: list[_Cost]
    encode_ms: float
    index_ms: float

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> ServedHits:
        """Return the hits of one query.

        Raises:
            IndexError: there is no such query.
        """
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        places = range(self.offsets[query], self.offsets[query + 1])
        closeness = self.embedding_distances
        hits = ServedHits(
            ServedHit(self.ids[place], self.distances[place], None if closeness is None else closeness[place])
            for place in places
        )
        hits.cost = self.costs[query]
        hits.encode_ms, hits.index_ms = self.encode_ms, self.index_ms
        return hits

    def __iter__(self) -> Iterator[ServedHits]:
        """Yield the hits of each query in turn."""
        return (self[query] for query in range(len(self)))


class Client:
    """A connection to a service, kept open between calls; for one thread at a time.

    Args:
        address: address of the service, such as "http://127.0.0.1:8080".
        token: the service's token, if it wants one.
        timeout: seconds to wait for an answer.

    Raises:
        InputError: the address is not one of HTTP.
    """

    def __init__(self, address: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"address is {address!r}; expected one such as http://127.0.0.1:8080")
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        self._path = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        self._connection.close()

    def search(
        self,
        query: _Query | None = None,
        radius: int | None = None,
        *,
        code: _Code | None = None,
        id: Id | None = None,
        limit: int | None = None,
        filter: _Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[float] | None = None,
        payload: bool = True,
        codes: bool = False,
    ) -> ServedHits:
        """Find every item within `radius` bits of a query, nearest first, or the first `limit` of them.

        Args:
            query: an image (a path, or the bytes of a file) or a vector; or else
            code: bytes, hexadecimal digits, or a row of uint8; or else
            id: an item of the store.
            radius: the store's own by default.
            limit: most hits; the service's default, 50.
            filter: the value, or the `Range` of values, of each named top-level field of the payload.
            rerank: so many of the hits (after `limit`), the closest by embedding.
            embedding: of the query, for `rerank`; that of the encoder or of the item by default.
            payload: True if hits come with their payloads.
            codes: True if hits come with their codes.

        Raises:
            InputError: not exactly one of query, code and id is given, or one of them is of another kind.
            ServiceError: the service refused, failed or did not answer.
            BusyError: it has too much to do; try again after `retry_after` seconds.
        """
        asked = _one(query, code, id, embedding, payload, codes)
        return self._hits("/v1/search", {**asked, "radius": radius, "limit": limit, **_ranked(filter, rerank)})

    def search_batch(
        self,
        queries: Iterable[Iterable[float]] | None = None,
        radius: int | None = None,
        *,
        codes: Iterable[_Code] | None = None,
        limit: int | None = None,
        filter: _Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[Iterable[float]] | None = None,
    ) -> ServedBatch:
        """Find every item within `radius` bits of each of many vectors or codes; see `search`.

        Args:
            queries: vectors; or else
            codes: codes.
            radius: as in `search`.
            limit: most hits for each query; the service's default, 10.
            filter: as in `search`.
            rerank: as in `search`, for each query.
            embedding: of the queries, a row each.

        Raises:
            As `search`.
        """
        asked = _many(queries, codes, embedding)
        return self._batch("/v1/search/batch", {**asked, "radius": radius, "limit": limit, **_ranked(filter, rerank)})

    def nearest(
        self,
        query: _Query | None = None,
        k: int = 10,
        *,
        code: _Code | None = None,
        id: Id | None = None,
        filter: _Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[float] | None = None,
        payload: bool = True,
        codes: bool = False,
    ) -> ServedHits:
        """Find the `k` nearest items exactly; for the rest see `search`."""
        asked = _one(query, code, id, embedding, payload, codes)
        return self._hits("/v1/nearest", {**asked, "k": k, **_ranked(filter, rerank)})

    def nearest_batch(
        self,
        queries: Iterable[Iterable[float]] | None = None,
        k: int = 10,
        *,
        codes: Iterable[_Code] | None = None,
        filter: _Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[Iterable[float]] | None = None,
    ) -> ServedBatch:
        """Find the `k` nearest items of each of many vectors or codes; see `nearest` and `search_batch`."""
        asked = _many(queries, codes, embedding)
        return self._batch("/v1/nearest/batch", {**asked, "k": k, **_ranked(filter, rerank)})

    def probe(
        self,
        query: _Query | None = None,
        budget: int | None = None,
        *,
        logits: Iterable[float] | None = None,
        code: _Code | None = None,
        id: Id | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: _Filter | None = None,
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
        asked = _one(query, code, id, embedding, payload, codes, logits)
        how = {"budget": budget, "radius": radius, "limit": limit, "comparisons": comparisons}
        return self._hits("/v1/probe", {**asked, **how, **_ranked(filter, rerank)})

    def probe_batch(
        self,
        queries: Iterable[Iterable[float]] | None = None,
        budget: int | None = None,
        *,
        logits: Iterable[Iterable[float]] | None = None,
        codes: Iterable[_Code] | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: _Filter | None = None,
        rerank: int | None = None,
        embedding: Iterable[Iterable[float]] | None = None,
        comparisons: int | None = None,
    ) -> ServedBatch:
        """Search approximately for each of many queries; see `probe` and `search_batch`."""
        asked = _many(queries, codes, embedding, logits)
        how = {"budget": budget, "radius": radius, "limit": limit, "comparisons": comparisons}
        return self._batch("/v1/probe/batch", {**asked, **how, **_ranked(filter, rerank)})

    def put(self, items: Iterable[Item]) -> int:
        """Put items, in place of those with the same ids, and return their number.

        On return they are on the service's disk, all of them or none.

        Raises:
            InputError: an item has not exactly one of input and code.
            ServiceError: as in `search`; `status` is 403 where the service takes no changes.
        """
        content = [_without_none(_item(item)) for item in items]
        return int(self._json("PUT", "/v1/items", {"items": content})["items"]) if content else 0

    def delete(self, id: Id) -> None:
        """Delete an item.

        Raises:
            ServiceError: there is no item of this id (`status` 404), or the service takes no changes (403).
        """
        self._json("DELETE", _item_path(id))

    def get(self, id: Id) -> Item | None:
        """Return the item of an id, its code as bytes; None where there is none."""
        try:
            found = self._json("GET", _item_path(id))
        except ServiceError as error:
            if error.status == 404:
                return None
            raise
        code = bytes.fromhex(found["code"])
        return Item(found["id"], code=code, embedding=found["embedding"], payload=found["payload"])

    def picture(self, id: Id, size: int = 256) -> bytes:
        """Return an item's picture, a PNG or JPEG at most `size` pixels wide and high."""
        return self._call("GET", f"{_item_path(id, '/image')}&size={size}")

    def stats(self) -> dict[str, Any]:
        """Return what the service holds and can do, as `GET /v1/stats` tells it."""
        return self._json("GET", "/v1/stats")

    def is_ready(self) -> bool:
        """Return True if the service takes requests."""
        try:
            self._call("GET", "/readyz")
        except ServiceError:
            return False
        return True

    def _hits(self, path: str, asked: Mapping[str, Any]) -> ServedHits:
        found = self._json("POST", path, _without_none(asked))
        hits = ServedHits(
            ServedHit(
                hit["id"],
                hit["distance"],
                hit.get("embedding_distance"),
                bytes.fromhex(hit["code"]) if "code" in hit else None,
                hit.get("payload"),
            )
            for hit in found["hits"]
        )
        cost, took = found["cost"], found["took"]
        hits.cost = _Cost(cost["buckets"], cost["candidates"], cost["comparisons"])
        hits.code, hits.truncated = bytes.fromhex(found["code"]), found["truncated"]
        hits.encode_ms, hits.index_ms = took["encode_ms"], took["index_ms"]
        return hits

    def _batch(self, path: str, asked: Mapping[str, Any]) -> ServedBatch:
        found = self._json("POST", path, _without_none(asked))
        costs, took = found["costs"], found["took"]
        return ServedBatch(
            found["offsets"],
            found["ids"],
            found["distances"],
            found.get("embedding_distances"),
            list(map(_Cost, costs["buckets"], costs["candidates"], costs["comparisons"])),
            took["encode_ms"],
            took["index_ms"],
        )

    def _json(self, method: str, path: str, content: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._call(method, path, content))
        return answer

    def _call(self, method: str, path: str, content: Any = None) -> bytes:
        body = None if content is None else json.dumps(content, allow_nan=False).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            response, answer = self._exchange(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServiceError(f"the service does not answer: {error or type(error).__name__}") from error
        if response.status < 400:
            return answer
        raise _error(response, answer)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        # A second delete would not find what the first one has deleted.
        for last in (self._connection.sock is None or method == "DELETE", True):
            try:
                self._connection.request(method, self._path + path, body, dict(headers))
                response = self._connection.getresponse()
                return response, response.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # A connection that was idle may have been closed meanwhile; a new one is worth one try.
                self.close()
                if last:
                    raise
        raise http.client.CannotSendRequest


def _one(
    query: _Query | None,
    code: _Code | None,
    id: Id | None,
    embedding: Iterable[float] | None,
    payload: bool,
    codes: bool,
    logits: Iterable[float] | None = None,
) -> dict[str, Any]:
    """Return the fields of a request with one query."""
    if sum(each is not None for each in (query, code, id, logits)) != 1:
        raise InputError("give one of query, code and id (or logits, to probe)")
    return {
        **({} if query is None else _input(query)),
        "code": None if code is None else _bytes_of(code).hex(),
        "id": id,
        "logits": _numbers(logits),
        "embedding": _numbers(embedding),
        "payload": payload,
        "codes": codes,
    }


def _many(
    queries: Iterable[Iterable[float]] | None,
    codes: Iterable[_Code] | None,
    embedding: Iterable[Iterable[float]] | None,
    logits: Iterable[Iterable[float]] | None = None,
) -> dict[str, Any]:
    """Return the fields of a request with many queries."""
    if sum(each is not None for each in (queries, codes, logits)) != 1:
        raise InputError("give one of queries and codes (or logits, to probe)")
    packed = None if codes is None else base64.b64encode(b"".join(map(_bytes_of, codes))).decode("ascii")
    return {
        "vectors": _rows(queries),
        "codes_base64": packed,
        "logits": _rows(logits),
        "embedding": _rows(embedding),
    }


def _ranked(filter: _Filter | None, rerank: int | None) -> dict[str, Any]:
    """Return the fields that every search has."""
    if filter is not None:
        filter = {
            field: _without_none({"min": wanted.min, "max": wanted.max}) if isinstance(wanted, Range) else wanted
            for field, wanted in filter.items()
        }
    return {"filter": filter, "rerank": rerank}


def _item(item: Item) -> dict[str, Any]:
    if not isinstance(item, Item):
        raise DtypeError(f"put got a {type(item).__name__}; expected hamtarget.items.Item(id, ...)")
    if (item.input is None) == (item.code is None):
        raise InputError(f"item {item.id!r} needs either an input or a code, one of them")
    code: Any = item.code
    embedding: Any = item.embedding
    return {
        "id": item.id,
        **({} if item.input is None else _input(item.input)),
        "code": None if code is None else _bytes_of(code).hex(),
        "embedding": _numbers(embedding),
        "payload": None if item.payload is None else dict(item.payload),
    }


def _input(given: _Query) -> dict[str, Any]:
    """Return the field of an input: an image where it is a path or bytes, a vector otherwise."""
    if isinstance(given, bytes | bytearray | memoryview):
        return {"image": base64.b64encode(given).decode("ascii")}
    if isinstance(given, str | os.PathLike):
        return {"image": base64.b64encode(Path(given).read_bytes()).decode("ascii")}
    return {"vector": _numbers(given)}


def _bytes_of(code: _Code) -> bytes:
    """Return the packed bytes of a code: of bytes, of hexadecimal digits, or of a row of uint8."""
    if isinstance(code, bytes | bytearray):
        return bytes(code)
    try:
        if isinstance(code, str):
            return bytes.fromhex(code)
        # Rows of uint8, as of numpy, are read at once; numpy need not be imported for that.
        whole = getattr(code, "tobytes", None)
        if whole is not None and getattr(code, "dtype", None) == "uint8":
            return bytes(whole())
        return bytes(int(value) for value in code)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"code is {str(code)[:40]!r}; expected bytes, hexadecimal digits, or a row of numbers from 0 to 255"
        ) from error


def _error(response: http.client.HTTPResponse, answer: bytes) -> ServiceError:
    try:
        told = json.loads(answer)["error"]
        message, kind = str(told["message"]), str(told["kind"])
    except (ValueError, KeyError, TypeError):
        message, kind = f"the service answered {response.status} {response.reason}", "unknown"
    if response.status != 503:
        return ServiceError(message, status=response.status, kind=kind)
    busy = BusyError(message, status=503, kind=kind)
    after = response.getheader("Retry-After", "")
    busy.retry_after = float(after) if after.isdigit() else 1.0
    return busy


def _item_path(id: Id, rest: str = "") -> str:
    kind = "integer" if isinstance(id, int) else "string"
    return f"/v1/items/{quote(str(id), safe='')}{rest}?kind={kind}"


def _numbers(values: Iterable[float] | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _rows(rows: Iterable[Iterable[float]] | None) -> list[list[float]] | None:
    return None if rows is None else [[float(value) for value in row] for row in rows]


def _without_none(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}
