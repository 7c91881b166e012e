"""`hamtarget search`: what in a store is near an image, a vector, a code or another item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hamtarget.cli.inputs.records import STDIN, Record, open_records, parse_line
from hamtarget.cli.terminal.options import AsJson, Key, StorePath
from hamtarget.cli.terminal.output import Column, printable, write_json, write_table
from hamtarget.cli.terminal.progress import progress_on_stderr
from hamtarget.errors import ImageError, InputError

if TYPE_CHECKING:
    from hamtarget.cli.inputs.encoding import EncodedRecords
    from hamtarget.search import BatchHits, Hit
    from hamtarget.store import Store

_QUERIES_AT_ONCE = 256
_NEAREST = 10
_COLUMNS = (
    Column("query"),
    Column("id"),
    Column("distance", number=True),
    Column("embedding distance", number=True),
    Column("payload"),
)
_RERANKED_COLUMN = 3


def search(
    store: StorePath,
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help="Image, file of vectors, code as hexadecimal digits, or - for lines, as `encode --json` writes them.",
        ),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="An item of the store as the query; repeatable.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--nearest", "-k", min=1, metavar="K", help="The K nearest; 10 by default.")
    ] = None,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Everything within R bits instead, and nothing else.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N hits within the radius.")] = None,
    rerank: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Of the N nearest by code, the K nearest by embedding, where the store keeps some."
        ),
    ] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only items whose payload says so; also FIELD=MIN..MAX. Repeatable."),
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Nearest items by Hamming distance, exactly; or, with --radius, all items so near.

    With --json, a line for each query: {"query": ..., "hits": [{"id": ..., "distance": ..., "payload": ...}, ...]}.
    """
    if k is not None and radius is not None:
        raise InputError("--nearest and --radius are given; pass one of them (--limit cuts the hits within a radius)")
    if rerank is not None and radius is not None:
        raise InputError("--rerank and --radius are given; --rerank goes with --nearest")
    if rerank is not None and rerank < (k or _NEAREST):
        raise InputError(f"--rerank is {rerank}; expected at least {k or _NEAREST}, as many as are wanted")
    if not queries and not id:
        raise InputError("nothing to search for; pass a QUERY, --id, or - for lines on the standard input")
    from hamtarget.store import Store

    with progress_on_stderr("Building the index") as tell:
        opened = Store.open(store, read_only=True, progress=tell)
    with opened:
        wanted = _Wanted(radius, k or _NEAREST, limit, rerank, _parse_filter(filter or []))
        rows: list[tuple[str, ...]] = []
        for batch in _batches(opened, queries or [], id or [], key):
            for query, hits in _found(opened, batch, wanted):
                if as_json:
                    write_json({"query": query, "hits": hits})
                else:
                    rows += [_row(query, hit) for hit in hits]
        if as_json:
            return
        # One query need not be named in every row.
        several = len(queries or []) + len(id or []) > 1 or len({row[0] for row in rows}) > 1
        shown = [
            column for column in range(len(_COLUMNS)) if (column or several) and (column != _RERANKED_COLUMN or rerank)
        ]
        write_table([_COLUMNS[column] for column in shown], [[row[column] for column in shown] for row in rows])


@dataclass(frozen=True)
class _Wanted:
    """What hits are asked for: those within a radius, or the k nearest where there is none."""

    radius: int | None
    k: int
    limit: int | None
    rerank: int | None
    filter: dict[str, Any]


def _found(store: Store, batch: list[Record], wanted: _Wanted) -> Iterator[tuple[str | int, list[dict[str, Any]]]]:
    """The name of each query of a batch, and its hits."""
    from hamtarget.cli.inputs.encoding import encode_records

    encoder = store.encoder if store.has_encoder and any(record.code is None for record in batch) else None
    encoded = encode_records(batch, encoder, n_bits=store.n_bits)
    if encoded.broken:
        raise ImageError(next(iter(encoded.broken.values())))
    found: BatchHits
    if wanted.rerank is not None:
        found = store.nearest_batch(
            k=wanted.rerank,
            codes=encoded.codes,
            filter=wanted.filter,
            rerank=wanted.k,
            embedding=_embeddings(store, encoded),
        )
    elif wanted.radius is not None:
        found = store.search_batch(radius=wanted.radius, codes=encoded.codes, limit=wanted.limit, filter=wanted.filter)
    else:
        found = store.nearest_batch(k=wanted.k, codes=encoded.codes, filter=wanted.filter)
    for record, hits in zip(encoded.records, found, strict=True):
        payloads = store.payloads([hit.id for hit in hits])
        yield record.id, [_as_dict(hit, payload) for hit, payload in zip(hits, payloads, strict=True)]


def _as_dict(hit: Hit, payload: Any) -> dict[str, Any]:
    told = {"id": hit.id, "distance": hit.distance, "payload": payload}
    return told if hit.embedding_distance is None else {**told, "embedding_distance": hit.embedding_distance}


def _embeddings(store: Store, encoded: EncodedRecords) -> Any:
    import numpy as np

    from hamtarget.cli.inputs.encoding import embeddings_of

    if store.embeddings is None:
        raise InputError(f"--rerank is given; {store.path} keeps no embeddings: make a store with --embeddings")
    if all(record.embedding is not None for record in encoded.records):
        return np.stack([record.embedding for record in encoded.records])
    return embeddings_of(encoded, store.embeddings)


def _batches(store: Store, queries: list[str], ids: list[str], key: str | None) -> Iterator[list[Record]]:
    if ids:
        yield [_stored(store, id) for id in ids]
    for query in queries:
        if query == STDIN or Path(query).exists():
            yield from open_records(query, codes=not store.has_encoder, key=key).batches(_QUERIES_AT_ONCE)
            continue
        record = parse_line(query, number=0, where=query)
        if record.code is None and record.vector is None:
            raise InputError(
                f"{query!r} is no file and no code; expected a path, {store.n_bits // 4} hexadecimal digits, or --id"
            )
        yield [Record(query, vector=record.vector, code=record.code)]


def _stored(store: Store, text: str) -> Record:
    """The item of this id; digits are taken for a string first, then for an integer."""
    import numpy as np

    for id in (text, int(text)) if text.removeprefix("-").isdecimal() else (text,):
        (item,) = store.get([id])
        if item is not None:
            return Record(id, code=np.asarray(item.code, dtype=np.uint8).tobytes(), embedding=item.embedding)
    raise InputError(f"{store.path} has no item {text!r}")


def _parse_filter(filters: list[str]) -> dict[str, Any]:
    from hamtarget.store import Range

    wanted: dict[str, Any] = {}
    for text in filters:
        field, equals, value = text.partition("=")
        if not equals or not field:
            raise InputError(f"--filter is {text!r}; expected FIELD=VALUE or FIELD=MIN..MAX")
        low, dots, high = value.partition("..")
        wanted[field] = Range(_value(low), _value(high)) if dots else _value(value)
    return wanted


def _value(text: str) -> Any:
    """Numbers, true, false and null as JSON has them; nothing as None; all else is text."""
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if not isinstance(value, dict | list) else text


def _row(query: str | int, hit: dict[str, Any]) -> tuple[str, ...]:
    payload = "" if hit["payload"] is None else json.dumps(hit["payload"], ensure_ascii=False)
    closeness = f"{hit['embedding_distance']:.4f}" if "embedding_distance" in hit else ""
    return printable(query), printable(hit["id"]), str(hit["distance"]), closeness, printable(payload)
