"""`hamtarget search`: finds the items of a store near an image, a vector, a text, a code or another item."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hamtarget.cli.inputs.queries import TextColumns, parse_filter, query_batches
from hamtarget.cli.inputs.records import Record
from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, IdColumn, Key, StorePlace, TextColumn, Threads
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import Column, note, printable, write_json, write_table
from hamtarget.errors import ImageError, InputError

if TYPE_CHECKING:
    from hamtarget.cli.inputs.record_codes import EncodedRecords
    from hamtarget.filters import Filter
    from hamtarget.query import Asked, Query
    from hamtarget.search import Answer, Hit
    from hamtarget.store import Store

# Hits of a query where no number is asked for.
_HITS = 10
_COLUMNS = (
    Column("query"),
    Column("id"),
    Column("distance", number=True),
    Column("embedding distance", number=True),
    Column("payload"),
)
_QUERY_COLUMN, _RANKED_COLUMN = 0, 3


def search(
    store: StorePlace,
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help="Image, file of vectors, code as hexadecimal digits, or - for lines, as `encode --json` writes them. "
            "In a store of texts: a text, a file of texts, or - for lines.",
        ),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="An item of the store as the query; repeatable.")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--nearest",
            "-k",
            min=1,
            metavar="K",
            help="Find the K nearest items: exactly, or in a store of vectors as many of them as --recall says.",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="In a store of vectors: find so many of the true nearest, such as .99; 1 compares all. Default: .95.",
        ),
    ] = None,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Find everything within R bits, exactly.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Search approximately: read at most N items for a query, the most likely first."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --radius or --budget: at most N hits.")
    ] = None,
    rerank: Annotated[
        int | None,
        typer.Option(min=1, metavar="L", help="Of the hits, the L with the smallest embedding distance, in order."),
    ] = None,
    comparisons: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="With --budget and --rerank: compare the embeddings of at most K items."),
    ] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only items whose payload says so; also FIELD=MIN..MAX. Repeatable."),
    ] = None,
    key: Key = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Find items near a query: the nearest 10, the nearest K, everything within a radius, or the most likely.

    Without --nearest, --radius and --budget, the 10 nearest are found, exactly. In a store of vectors they are the
    nearest vectors, of which 95 in 100 are found by default; how much must be read for that was measured when they were
    added. In a store of copies (`hamtarget add
    --encoder copies64`), all copies are found, those within the store's radius. Where the store's model was trained for
    probing, the nearest are found approximately, with a budget that the command tells.

    Of several pictures, one that cannot be read is named and left out; the exit code is then 1.

    With --json, a line for each query: {"query": ..., "hits": [{"id": ..., "distance": ..., "payload": ...}, ...]}.
    """
    if k is not None and (radius is not None or budget is not None):
        other = "--radius" if radius is not None else "--budget"
        raise InputError(f"--nearest and {other} are given; pass one of them (--limit cuts the hits within a radius)")
    if recall is not None and (radius is not None or budget is not None or rerank is not None):
        raise InputError("--recall is given with --radius, --budget or --rerank; it is for the nearest vectors alone")
    if limit is not None and radius is None and budget is None:
        raise InputError("--limit is given without --radius or --budget; for the nearest pass --nearest K")
    if comparisons is not None and budget is None:
        raise InputError("--comparisons is given without --budget; it bounds the work of an approximate search")
    if not queries and not id:
        raise InputError("nothing to search for; pass a QUERY, --id, or - for lines on the standard input")
    wanted = _Wanted(k, recall, radius, budget, limit, rerank, comparisons, parse_filter(filter or []), threads)
    with open_store(store) as opened:
        wanted = _with_defaults(opened, wanted)
        rows: list[tuple[str, ...]] = []
        broken: list[str] = []
        n_answered = 0
        columns = TextColumns(text_column, id_column)
        for batch in query_batches(opened, queries or [], id or [], key, columns):
            for query, hits in _found(opened, batch, wanted, on_broken=broken.append):
                n_answered += 1
                if as_json:
                    write_json({"query": query, "hits": hits})
                else:
                    rows += [_row(query, hit) for hit in hits]
    if broken and not n_answered:
        raise ImageError(broken[0])
    if not as_json:
        if not rows:
            note(_nothing_found(wanted))
        several = len(queries or []) + len(id or []) > 1 or len({row[_QUERY_COLUMN] for row in rows}) > 1
        _write_rows(rows, names_queries=several)
    for reason in broken:
        note(f"hamtarget: left out {printable(reason)}")
    if broken:
        raise typer.Exit(FOUND)


def _nothing_found(wanted: _Wanted) -> str:
    if wanted.radius is None:
        return "hamtarget: no item was found"
    return f"hamtarget: no item is within {wanted.radius} bits; --nearest {_HITS} finds the nearest, however far"


@dataclass(frozen=True)
class _Wanted:
    """The options of a search; None where they are not given."""

    k: int | None
    recall: float | None
    radius: int | None
    budget: int | None
    limit: int | None
    rerank: int | None
    comparisons: int | None
    filter: Filter | None
    threads: int
    nearest_vectors: bool = False


def _with_defaults(store: Store, wanted: _Wanted) -> _Wanted:
    """Return the options with those of the library in place of missing ones."""
    from hamtarget.store.defaults import (
        CHOSEN_FOR_EACH_HIT,
        is_made_for_copies,
        is_made_for_probing,
        probing_defaults,
        ranks_texts,
    )

    if wanted.recall is not None and store.vectors is None:
        raise InputError(f"--recall is given, but {store.path} keeps no vectors; leave it out, or make a new store")
    if wanted.budget is None and wanted.radius is None and wanted.rerank is None and store.vectors is not None:
        if store.needs_tuning:
            _prepare(store)
        return replace(wanted, k=wanted.k or _HITS, nearest_vectors=True)
    if wanted.budget is None and wanted.k is None and wanted.radius is None:
        if is_made_for_copies(store):
            note(
                f"hamtarget: copies are within {store.radius} bits, the store's radius; --radius R finds more or "
                f"fewer, --nearest {_HITS} the nearest"
            )
            return replace(wanted, radius=store.radius)
        if ranks_texts(store):
            # Codes choose, embeddings rank.
            chosen = _HITS * CHOSEN_FOR_EACH_HIT if wanted.rerank is None else max(wanted.rerank, _HITS)
            return replace(wanted, k=chosen, rerank=wanted.rerank or _HITS)
        if not is_made_for_probing(store):
            return replace(wanted, k=_HITS)
        usual = probing_defaults(store)
        wanted = replace(wanted, budget=usual.budget)
        note(
            f"hamtarget: the model was trained for probing: at most {usual.budget:,} of {len(store):,} items are read "
            "for a query, the most likely first; --budget N reads more or fewer, --nearest K is exact"
        )
    return wanted


def _prepare(store: Store) -> None:
    """Call `tune` for a store in a database; in a folder, all vectors are compared instead, which is sooner done."""
    from hamtarget.query import Work

    if isinstance(store.path, Path):
        note("hamtarget: the store is not tuned: all vectors are compared; `hamtarget add` tunes it, or Store.tune()")
        return
    with progress_on_stderr("Tuning the search") as tell:
        store.tune(work=Work(progress=tell))


def _found(
    store: Store, batch: list[Record], wanted: _Wanted, *, on_broken: Callable[[str], None]
) -> Iterator[tuple[str | int, list[dict[str, Any]]]]:
    """Yield the name of each query of a batch, and its hits; tell of each picture that cannot be read."""
    from hamtarget.cli.inputs.record_codes import encode_records

    encoder = store.encoder if store.has_encoder and any(record.code is None for record in batch) else None
    encoded = encode_records(batch, encoder, n_bits=store.n_bits)
    for reason in encoded.broken.values():
        on_broken(reason)
    if not encoded.records:
        return
    for record, hits in zip(encoded.records, _search(store, encoded, wanted), strict=True):
        payloads = store.payloads([hit.id for hit in hits])
        yield record.id, [_as_dict(hit, payload) for hit, payload in zip(hits, payloads, strict=True)]


def _search(store: Store, encoded: EncodedRecords, wanted: _Wanted) -> Answer:
    from hamtarget.query import Asked, Bounds, Work

    work = Work(threads=wanted.threads)
    if wanted.budget is not None:
        return store.answer(*_probe(store, encoded, wanted, wanted.budget), work)
    if wanted.nearest_vectors and wanted.k is not None and _are_vectors(encoded, wanted):
        vectors = _embeddings(store, encoded)
        asked = Asked(logits=_logits(store, encoded, vectors), embeddings=vectors)
        # Within bounds, nothing is tuned.
        work = Work(Bounds().start(), wanted.threads)
        return store.nearest_batch(asked, wanted.k, recall=wanted.recall, filter=wanted.filter, work=work)
    asked = Asked(encoded.codes, embeddings=None if wanted.rerank is None else _embeddings(store, encoded))
    if wanted.k is not None:
        return store.nearest_batch(asked, wanted.k, filter=wanted.filter, rerank=wanted.rerank, work=work)
    return store.search_batch(
        asked, wanted.radius, limit=wanted.limit, filter=wanted.filter, rerank=wanted.rerank, work=work
    )


def _probe(store: Store, encoded: EncodedRecords, wanted: _Wanted, budget: int) -> tuple[Asked, Query]:
    """Return what is asked, and what is wanted, where a budget of rows is read."""
    from hamtarget.query import Asked, Query
    from hamtarget.store.defaults import default_radius

    limit, rerank = wanted.limit, wanted.rerank
    if limit is None and rerank is None:
        # A code has no embedding to rank by, unless it is an item's.
        can_rank = store.embeddings is None or all(
            record.code is None or record.embedding is not None for record in encoded.records
        )
        limit, rerank = (None, _HITS) if can_rank else (_HITS, None)
    embeddings = None if rerank is None or store.embeddings is None else _embeddings(store, encoded)
    return Asked(logits=encoded.probing_logits(), embeddings=embeddings), Query(
        default_radius(store) if wanted.radius is None else wanted.radius,
        limit,
        budget=budget,
        comparisons=wanted.comparisons,
        filter=wanted.filter,
        rerank=rerank,
    )


def _embeddings(store: Store, encoded: EncodedRecords) -> Any:
    import numpy as np

    from hamtarget.cli.inputs.record_codes import embeddings_of

    if store.embeddings is None:
        raise InputError(f"--rerank is given; {store.path} keeps no embeddings: make a store with --embeddings")
    if all(record.embedding is not None for record in encoded.records):
        return np.stack([record.embedding for record in encoded.records])
    return embeddings_of(encoded, store.embeddings, keeps_vectors=store.vectors is not None)


def _are_vectors(encoded: EncodedRecords, wanted: _Wanted) -> bool:
    """Return True if the vectors of all queries are known; of a code it is not, and its nearest are those by code.

    Raises:
        InputError: a recall is asked for.
    """
    codes = [record.id for record in encoded.records if record.code is not None and record.embedding is None]
    if codes and wanted.recall is not None:
        raise InputError(f"--recall is given, but {codes[0]!r} is a code; it is for queries that are vectors or items")
    return not codes


def _logits(store: Store, encoded: EncodedRecords, vectors: Any) -> Any:
    """Return the logits of vectors; those of items of the store are made anew, since only their signs are kept."""
    from hamtarget.store.vectors.kept_vectors import restored_vectors

    if all(record.code is None for record in encoded.records) or store.embeddings is None:
        return encoded.logits
    return store.encoder.logits(restored_vectors(vectors, store.embeddings))


def _as_dict(hit: Hit, payload: Any) -> dict[str, Any]:
    told = {"id": hit.id, "distance": hit.distance, "payload": payload}
    return told if hit.embedding_distance is None else {**told, "embedding_distance": hit.embedding_distance}


def _row(query: str | int, hit: dict[str, Any]) -> tuple[str, ...]:
    from hamtarget.datasets.pictures.picture_payloads import shown_payload

    payload = "" if hit["payload"] is None else json.dumps(shown_payload(hit["payload"]), ensure_ascii=False)
    closeness = f"{hit['embedding_distance']:.4f}" if "embedding_distance" in hit else ""
    return printable(query), printable(hit["id"]), str(hit["distance"]), closeness, printable(payload)


def _write_rows(rows: list[tuple[str, ...]], *, names_queries: bool) -> None:
    """Write hits as a table; a column that says nothing is left out."""
    hidden = set() if names_queries else {_QUERY_COLUMN}
    if not any(row[_RANKED_COLUMN] for row in rows):
        hidden.add(_RANKED_COLUMN)
    shown = [column for column in range(len(_COLUMNS)) if column not in hidden]
    write_table([_COLUMNS[column] for column in shown], [[row[column] for column in shown] for row in rows])
