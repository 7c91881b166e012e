"""A client of `hamtarget serve`; needs nothing but Python.

from hamtarget.client import Client

with Client("http://127.0.0.1:8080") as client:
    client.put([Put("shoe-1", code=code, payload={"price": 40})])
    for hit in client.search(image="shoe.jpg", radius=4).hits:
        print(hit.id, hit.distance, hit.payload)
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from hamtarget.errors import BusyError, InputError, ServiceError

Id = str | int
Image = str | os.PathLike[str] | bytes
"""A file, or the bytes of one."""
Filter = Mapping[str, Any]
"""Fields of the payload: a value each, or {"min": ..., "max": ...}."""


@dataclass(frozen=True, slots=True)
class Put:
    """An item to be kept: one of `code`, `vector` and `image`."""

    id: Id
    code: bytes | None = None
    vector: Sequence[float] | None = None
    image: Image | None = None
    embedding: Sequence[float] | None = None
    payload: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ServedHit:
    """An item that was found; `embedding_distance`, `code` and `payload` only where they were asked for."""

    id: Id
    distance: int
    embedding_distance: float | None = None
    code: bytes | None = None
    payload: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Hits of a query, nearest first, its code, and what it took."""

    hits: tuple[ServedHit, ...]
    code: bytes
    truncated: bool
    candidates: int
    comparisons: int
    encode_ms: float
    index_ms: float


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """Hits of many queries, one after another: those of query q lie from offsets[q] to offsets[q + 1]."""

    offsets: list[int]
    ids: list[Id]
    distances: list[int]
    candidates: int
    comparisons: int
    index_ms: float

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> list[ServedHit]:
        """Hits of one query."""
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        here = slice(self.offsets[query], self.offsets[query + 1])
        return [ServedHit(id, distance) for id, distance in zip(self.ids[here], self.distances[here], strict=True)]


@dataclass(frozen=True, slots=True)
class ServedItem:
    """An item as the service keeps it."""

    id: Id
    code: bytes
    embedding: list[float] | None = field(repr=False)
    payload: dict[str, Any] | None
    has_image: bool


class Client:
    """A connection to a service, kept open between calls; for one thread at a time.

    Args:
        address: such as "http://127.0.0.1:8080".
        token: what the service wants, if it wants one.
        timeout: seconds to wait for an answer.
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
        """Nothing; the connection is closed."""
        self._connection.close()

    def search(
        self,
        *,
        code: bytes | None = None,
        vector: Sequence[float] | None = None,
        image: Image | None = None,
        id: Id | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: bool = False,
        embedding: Sequence[float] | None = None,
        payload: bool = True,
        codes: bool = False,
    ) -> Answer:
        """Everything within `radius` bits of a code, vector, image or stored item, nearest first, at most `limit`.

        Raises:
            ServiceError: the service refused, failed or did not answer. BusyError: it has too much to do.
        """
        asked = _query(code, vector, image, id, filter, rerank, embedding, payload, codes)
        return _answer(self._post("/v1/search", {**asked, "radius": radius, "limit": limit}))

    def nearest(
        self,
        k: int = 10,
        *,
        code: bytes | None = None,
        vector: Sequence[float] | None = None,
        image: Image | None = None,
        id: Id | None = None,
        filter: Filter | None = None,
        rerank: bool = False,
        embedding: Sequence[float] | None = None,
        payload: bool = True,
        codes: bool = False,
    ) -> Answer:
        """The `k` nearest items; for the rest see `search`."""
        asked = _query(code, vector, image, id, filter, rerank, embedding, payload, codes)
        return _answer(self._post("/v1/nearest", {**asked, "k": k}))

    def search_batch(
        self,
        codes: Sequence[bytes],
        *,
        radius: int | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
    ) -> BatchAnswer:
        """Everything within `radius` bits of each of many codes, at most `limit` hits each."""
        asked = {"codes_base64": _packed(codes), "radius": radius, "limit": limit, "filter": filter}
        return BatchAnswer(**self._post("/v1/search/batch", asked))

    def nearest_batch(self, codes: Sequence[bytes], k: int = 10, *, filter: Filter | None = None) -> BatchAnswer:
        """The `k` nearest items of each of many codes."""
        asked = {"codes_base64": _packed(codes), "k": k, "filter": filter}
        return BatchAnswer(**self._post("/v1/nearest/batch", asked))

    def put(self, items: Iterable[Put]) -> int:
        """How many items were given; they are then on the service's disk, all of them or none."""
        content = [_without_none(_put(item)) for item in items]
        return int(self._json("PUT", "/v1/items", {"items": content})["items"]) if content else 0

    def delete(self, id: Id) -> None:
        """Nothing; the item is gone.

        Raises:
            ServiceError: there is none of this id (`status` 404), or the service takes no changes.
        """
        self._json("DELETE", _item_path(id))

    def get(self, id: Id) -> ServedItem | None:
        """The item of an id; None where there is none."""
        try:
            found = self._json("GET", _item_path(id))
        except ServiceError as error:
            if error.status == 404:
                return None
            raise
        return ServedItem(
            found["id"], bytes.fromhex(found["code"]), found["embedding"], found["payload"], found["has_image"]
        )

    def picture(self, id: Id, size: int = 256) -> bytes:
        """An item's picture, a PNG or JPEG at most `size` pixels wide and high."""
        return self._call("GET", f"{_item_path(id, '/image')}&size={size}")

    def stats(self) -> dict[str, Any]:
        """What the service holds, as `GET /v1/stats` tells it."""
        return self._json("GET", "/v1/stats")

    def is_ready(self) -> bool:
        """Whether the service takes requests."""
        try:
            self._call("GET", "/readyz")
        except ServiceError:
            return False
        return True

    def _post(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return self._json("POST", path, _without_none(asked))

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


def _query(
    code: bytes | None,
    vector: Sequence[float] | None,
    image: Image | None,
    id: Id | None,
    filter: Filter | None,
    rerank: bool,
    embedding: Sequence[float] | None,
    payload: bool,
    codes: bool,
) -> dict[str, Any]:
    if sum(each is not None for each in (code, vector, image, id)) != 1:
        raise InputError("give one of code, vector, image and id")
    return {
        "code": None if code is None else bytes(code).hex(),
        "vector": _numbers(vector),
        "image": None if image is None else _file_base64(image),
        "id": id,
        "filter": filter,
        "rerank": rerank,
        "embedding": _numbers(embedding),
        "payload": payload,
        "codes": codes,
    }


def _put(item: Put) -> dict[str, Any]:
    return {
        "id": item.id,
        "code": None if item.code is None else bytes(item.code).hex(),
        "vector": _numbers(item.vector),
        "image": None if item.image is None else _file_base64(item.image),
        "embedding": _numbers(item.embedding),
        "payload": None if item.payload is None else dict(item.payload),
    }


def _answer(found: Mapping[str, Any]) -> Answer:
    hits = tuple(
        ServedHit(
            hit["id"],
            hit["distance"],
            hit.get("embedding_distance"),
            bytes.fromhex(hit["code"]) if "code" in hit else None,
            hit.get("payload"),
        )
        for hit in found["hits"]
    )
    took = found["took"]
    return Answer(
        hits,
        bytes.fromhex(found["code"]),
        found["truncated"],
        found["candidates"],
        found["comparisons"],
        took["encode_ms"],
        took["index_ms"],
    )


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


def _packed(codes: Sequence[bytes]) -> str:
    return base64.b64encode(b"".join(bytes(code) for code in codes)).decode("ascii")


def _file_base64(image: Image) -> str:
    content = image if isinstance(image, bytes) else Path(image).read_bytes()
    return base64.b64encode(content).decode("ascii")


def _numbers(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _without_none(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}
