"""Requests as the service takes them, and its answers as the library gives them: what both clients share."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

from hamtarget.client.results import (
    ServedBatch,
    ServedCost,
    ServedGroup,
    ServedGroups,
    ServedHit,
    ServedHits,
    ServedMatch,
    ServedMember,
)
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError
from hamtarget.filters import Filter as PayloadFilter
from hamtarget.items import CodePair, Id, Item

Filter = Mapping[str, Any]
Code = bytes | str | Iterable[int]
Query = str | os.PathLike[str] | bytes | Iterable[float]
Ties = Literal["stored", "mixed"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request.

    Attributes:
        method: method of HTTP.
        path: path and query.
        body: JSON; None where there is none.
        read: turns the body of the answer into the call's result.
        changes: True if it changes the store.
        missing: the result where the service answers 404, if that is no error.
    """

    method: str
    path: str
    body: bytes | None
    read: Callable[[bytes], T]
    changes: bool = False
    missing: tuple[T, ...] = ()


def hits_call(path: str, asked: Mapping[str, Any]) -> Call[ServedHits]:
    """Return the request for the hits of one query."""
    return Call("POST", path, _json(_without_none(asked)), _read_hits)


def batch_call(path: str, asked: Mapping[str, Any]) -> Call[ServedBatch]:
    """Return the request for the hits of many queries."""
    return Call("POST", path, _json(_without_none(asked)), _read_batch)


def match_call(asked: Mapping[str, Any]) -> Call[tuple[ServedMatch, ...]]:
    """Return the request for the items that several codes of one query match."""
    return Call("POST", "/v1/match", _json(_without_none(asked)), _read_matches)


def put_call(items: Iterable[Item]) -> Call[int] | None:
    """Return the request that puts items; None where there are none."""
    content = [_without_none(_item(item)) for item in items]
    if not content:
        return None
    return Call("PUT", "/v1/items", _json({"items": content}), _read_n_items, changes=True)


def delete_call(id: Id) -> Call[None]:
    """Return the request that deletes an item."""
    return Call("DELETE", _item_path(id), None, _read_nothing, changes=True)


def get_call(id: Id) -> Call[Item | None]:
    """Return the request for an item."""
    return Call("GET", _item_path(id), None, _read_item, missing=(None,))


def picture_call(id: Id, size: int) -> Call[bytes]:
    """Return the request for an item's picture."""
    return Call("GET", f"{_item_path(id, '/image')}&size={size}", None, bytes)


def groups_call(asked: Mapping[str, Any]) -> Call[ServedGroups]:
    """Return the request for a page of groups."""
    return Call("POST", "/v1/groups", _json(_without_none(asked)), _read_groups)


def group_members_call(asked: Mapping[str, Any]) -> Call[tuple[ServedMember, ...]]:
    """Return the request for members of a group."""
    return Call("POST", "/v1/groups/members", _json(_without_none(asked)), _read_members)


def map_call(n: int) -> Call[dict[str, Any]]:
    """Return the request for a map of `n` items."""
    return Call("GET", f"/v1/map?n={n}", None, json.loads)


def stats_call() -> Call[dict[str, Any]]:
    """Return the request for what the service holds and can do."""
    return Call("GET", "/v1/stats", None, json.loads)


def ready_call() -> Call[bool]:
    """Return the request that asks if the service takes requests."""
    return Call("GET", "/readyz", None, lambda _: True)


def one_query(
    query: Query | None,
    code: Code | None,
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


def many_queries(
    queries: Iterable[Iterable[float]] | Iterable[str] | None,
    codes: Iterable[Code] | None,
    embedding: Iterable[Iterable[float]] | None,
    logits: Iterable[Iterable[float]] | None = None,
) -> dict[str, Any]:
    """Return the fields of a request with many queries."""
    if sum(each is not None for each in (queries, codes, logits)) != 1:
        raise InputError("give one of queries and codes (or logits, to probe)")
    packed = None if codes is None else base64.b64encode(b"".join(map(_bytes_of, codes))).decode("ascii")
    rows = None if queries is None else list(queries)
    is_texts = bool(rows) and all(isinstance(row, str) for row in rows or [])
    return {
        "vectors": None if is_texts else _rows(rows),  # type: ignore[arg-type]
        "texts": rows if is_texts else None,
        "codes_base64": packed,
        "logits": _rows(logits),
        "embedding": _rows(embedding),
    }


def match_query(inputs: Iterable[Query] | None, codes: Iterable[Code] | None, id: Id | None) -> dict[str, Any]:
    """Return the fields of the query of a match."""
    if sum(each is not None for each in (inputs, codes, id)) != 1:
        raise InputError("give one of inputs, codes and id")
    return {
        **({} if inputs is None else _inputs(inputs)),
        "codes": None if codes is None else [_bytes_of(code).hex() for code in codes],
        "id": id,
    }


def ranking(filter: Filter | None, rerank: int | None) -> dict[str, Any]:
    """Return the fields that every search has."""
    checked = PayloadFilter.from_json(filter)
    return {"filter": None if checked is None else checked.as_json(), "rerank": rerank}


def _item(item: Item) -> dict[str, Any]:
    if not isinstance(item, Item):
        raise DtypeError(f"put got a {type(item).__name__}; expected hamtarget.items.Item(id, ...)")
    if sum(given is not None for given in (item.input, item.code, item.inputs, item.codes)) != 1:
        raise InputError(f"item {item.id!r} needs either an input or a code, or several: inputs or codes")
    code: Any = item.code
    codes: Any = item.codes
    embedding: Any = item.embedding
    embeddings: Any = item.embeddings
    return {
        "id": item.id,
        **({} if item.input is None else _input(item.input)),
        **({} if item.inputs is None else _inputs(item.inputs)),
        "code": None if code is None else _bytes_of(code).hex(),
        "codes": None if codes is None else [_bytes_of(each).hex() for each in codes],
        "embedding": _numbers(embedding),
        "embeddings": _rows(embeddings),
        "payload": None if item.payload is None else dict(item.payload),
    }


def _input(given: Query) -> dict[str, Any]:
    """Return the field of an input: an image where it is bytes or names a file, else a text, else a vector."""
    if isinstance(given, bytes | bytearray | memoryview):
        return {"image": base64.b64encode(given).decode("ascii")}
    if isinstance(given, str) and not _is_file(given):
        return {"text": given}
    if isinstance(given, str | os.PathLike):
        return {"image": base64.b64encode(Path(given).read_bytes()).decode("ascii")}
    return {"vector": _numbers(given)}


def _inputs(given: Iterable[Query]) -> dict[str, Any]:
    """Return the field of several inputs of one kind: images, texts or vectors."""
    if isinstance(given, str | bytes | os.PathLike):
        raise InputError(f"inputs are one {type(given).__name__}; expected a list of them")
    fields = [_input(each) for each in given]
    kinds = {kind for field in fields for kind in field}
    if len(kinds) != 1:
        raise InputError(f"inputs are {', '.join(sorted(kinds)) or 'none'}; expected some, all of one kind")
    (kind,) = kinds
    return {f"{kind}s": [field[kind] for field in fields]}


def _is_file(name: str) -> bool:
    try:
        return os.path.isfile(name)
    except ValueError:
        # A NUL character.
        return False


def _bytes_of(code: Code) -> bytes:
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


def _read_hits(answer: bytes) -> ServedHits:
    found = json.loads(answer)
    hits = ServedHits(
        ServedHit(
            hit["id"],
            hit["distance"],
            hit.get("embedding_distance"),
            bytes.fromhex(hit["code"]) if "code" in hit else None,
            hit.get("payload"),
            tuple(map(bytes.fromhex, hit["codes"])) if "codes" in hit else None,
        )
        for hit in found["hits"]
    )
    cost, took = found["cost"], found["took"]
    hits.cost = ServedCost(cost["buckets"], cost["candidates"], cost["comparisons"])
    hits.code, hits.truncated = bytes.fromhex(found["code"]), found["truncated"]
    hits.encode_ms, hits.index_ms = took["encode_ms"], took["index_ms"]
    return hits


def _read_matches(answer: bytes) -> tuple[ServedMatch, ...]:
    matches = []
    for found in json.loads(answer)["matches"]:
        payload = found.pop("payload", None)
        pairs = tuple(CodePair(*pair) for pair in found.pop("pairs"))
        match = ServedMatch(**found, pairs=pairs)
        match.payload = payload
        matches.append(match)
    return tuple(matches)


def _read_batch(answer: bytes) -> ServedBatch:
    found = json.loads(answer)
    costs, took = found["costs"], found["took"]
    return ServedBatch(
        found["offsets"],
        found["ids"],
        found["distances"],
        found.get("embedding_distances"),
        list(map(ServedCost, costs["buckets"], costs["candidates"], costs["comparisons"])),
        took["encode_ms"],
        took["index_ms"],
    )


def _read_groups(answer: bytes) -> ServedGroups:
    found = json.loads(answer)
    groups = tuple(
        ServedGroup(group["id"], group["size"], group["representative"], _members(group["members"]))
        for group in found["groups"]
    )
    return ServedGroups(found["radius"], found["linkage"], found["n_groups"], found["n_items"], groups, found["next"])


def _read_members(answer: bytes) -> tuple[ServedMember, ...]:
    return _members(json.loads(answer)["members"])


def _members(members: list[dict[str, Any]]) -> tuple[ServedMember, ...]:
    return tuple(ServedMember(member["id"], member["distance"], member.get("payload")) for member in members)


def _read_item(answer: bytes) -> Item:
    found = json.loads(answer)
    if "codes" in found:
        codes: Any = list(map(bytes.fromhex, found["codes"]))
        return Item(found["id"], codes=codes, embeddings=found["embeddings"], payload=found["payload"])
    return Item(found["id"], code=bytes.fromhex(found["code"]), embedding=found["embedding"], payload=found["payload"])


def _read_n_items(answer: bytes) -> int:
    return int(json.loads(answer)["items"])


def _read_nothing(answer: bytes) -> None:
    json.loads(answer)


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


def _item_path(id: Id, rest: str = "") -> str:
    kind = "integer" if isinstance(id, int) else "string"
    return f"/v1/items/{quote(str(id), safe='')}{rest}?kind={kind}"


def _numbers(values: Iterable[float] | None, name: str = "numbers") -> list[float] | None:
    if values is None:
        return None
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"{name} are not one row of numbers ({error}); expected one vector: for several, call the method that ends "
            "in _batch"
        ) from error
    if not all(map(math.isfinite, numbers)):
        raise NotFiniteError(f"{name} hold NaN or infinity; expected finite numbers")
    return numbers


def _rows(rows: Iterable[Iterable[float]] | None) -> list[list[float]] | None:
    return None if rows is None else [_numbers(row) or [] for row in rows]


def _without_none(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}
