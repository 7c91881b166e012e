"""`hamtarget match`: finds the items of a store that match several codes of one query, such as frames of a video."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hamtarget.cli.inputs.queries import TextColumns, parse_filter, query_batches, stored_records
from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, Key, StorePlace, Threads
from hamtarget.cli.terminal.output import Column, printable, write_json, write_table
from hamtarget.errors import ImageError, InputError

if TYPE_CHECKING:
    from hamtarget.cli.inputs.records import Record
    from hamtarget.items import Match
    from hamtarget.store import Store

_COLUMNS = (
    Column("id"),
    Column("of the query", number=True),
    Column("of the item", number=True),
    Column("distance", number=True),
    Column("payload"),
)


def match(
    store: StorePlace,
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help="Images, a folder of them, files of vectors, codes as hexadecimal digits, texts, or - for lines: all "
            "of them are one query.",
        ),
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="ID", help="An item of the store as the query.")] = None,
    at_least: Annotated[
        int, typer.Option(min=1, metavar="K", help="Find items that match at least K codes of the query.")
    ] = 1,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Codes match within R bits; the store's radius by default.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N items.")] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only items whose payload says so; also FIELD=MIN..MAX. Repeatable."),
    ] = None,
    key: Key = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Find the items that match several codes of one query, such as the frames of a video.

    A code of the query is matched by an item if at least one code of the item lies within the radius. Items that match
    most codes of the query come first. The table says how many codes of the query are matched, of how many, and the
    same for the item.

    With --json, one line: {"codes": ..., "matches": [{"id": ..., "distance": ..., "n_query_matched": ..., ...}, ...]}.
    """
    from hamtarget.query import Work

    if not queries and id is None:
        raise InputError("nothing to match; pass a QUERY, --id, or - for lines on the standard input")
    with open_store(store) as opened:
        records = [] if id is None else stored_records(opened, id)
        for batch in query_batches(opened, queries or [], [], key, TextColumns(None, None)):
            records += batch
        codes = _codes(opened, records)
        found = opened.match(
            codes=codes,
            radius=radius,
            at_least=at_least,
            limit=limit,
            filter=parse_filter(filter or []),
            work=Work(threads=threads),
        )
        payloads = opened.payloads([match.id for match in found])
    if as_json:
        told = [{**match._asdict(), "payload": payload} for match, payload in zip(found, payloads, strict=True)]
        write_json({"codes": len(codes), "matches": told})
    else:
        write_table(_COLUMNS, [_row(match, payload) for match, payload in zip(found, payloads, strict=True)])


def _codes(store: Store, records: list[Record]) -> Any:
    """Return the codes of the query."""
    from hamtarget.cli.inputs.record_codes import encode_records

    encoder = store.encoder if store.has_encoder and any(record.code is None for record in records) else None
    encoded = encode_records(records, encoder, n_bits=store.n_bits)
    if encoded.broken:
        raise ImageError(next(iter(encoded.broken.values())))
    return encoded.codes


def _row(match: Match, payload: Any) -> tuple[str, ...]:
    return (
        printable(match.id),
        f"{match.n_query_matched} of {match.n_query_codes}",
        f"{match.n_item_matched} of {match.n_item_codes}",
        str(match.distance),
        "" if payload is None else printable(json.dumps(payload, ensure_ascii=False)),
    )
