"""A look into a store in PostgreSQL: its sizes, and checks that its tables and indexes agree with each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hamtarget.progress import Progress
from hamtarget.store.items.code_rows import INCOMPLETE_SQL, ITEM_ROW_SQL, NUMBER_SQL, n_codes_of
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.postgres.filters import fields_of
from hamtarget.store.postgres.rows import only_row
from hamtarget.store.reports import StoreReport, StoreStats
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

_MOST_TOLD = 100
_FETCHED_ROWS = 4096
_TABLES = ("items", "names", "deleted", "state", "settings", "encoder", "tuning", "schema_version")

# What each finds is wrong; $1 is the first row number that has a name.
_CHECKS = {
    "row {} has no id": "SELECT row FROM items WHERE row >= $1 "
    f"AND {ITEM_ROW_SQL.format('row')} NOT IN (SELECT row FROM names)",
    "row {} has an id and nothing else": "SELECT row FROM names WHERE row NOT IN (SELECT row FROM items) OR row < $1",
    "row {} has a number that was not given yet": "SELECT row FROM names, state "
    f"WHERE {NUMBER_SQL.format('row')} >= greatest($1, next_row)",
    "row {} is of a change that was not made yet": "SELECT row FROM items, state WHERE changed > sequence AND $1 > 0",
}


def measure(connection: Connection, settings: Settings) -> StoreStats:
    """Return how much there is of everything."""
    sizes = ", ".join(f"coalesce(pg_total_relation_size(to_regclass('{table}')), 0)" for table in _TABLES)
    indexes = [f"to_regclass('items_by_substring_{number}')" for number in range(settings.substrings)]
    index_bytes = " + ".join(f"coalesce(pg_relation_size({index}), 0)" for index in indexes)
    n_codes, n_further, *found = only_row(
        connection, f"SELECT n_items, n_further, sequence, {index_bytes}, {sizes} FROM state"
    )
    return StoreStats(
        items=n_codes - n_further,
        codes=n_codes,
        sequence=found[0],
        n_bits=settings.n_bits,
        radius=settings.radius,
        snapshot_sequence=None,
        index_bytes=found[1],
        disk_bytes=sum(found[2:]),
    )


def inspect(connection: Connection, settings: Settings, *, progress: Progress | None) -> StoreReport:
    """Check the tables that the connection's transaction sees, and report what is wrong."""
    problems: list[str] = []
    n_codes, n_items, said, further = only_row(
        connection,
        f"SELECT (SELECT count(*) FROM items), (SELECT count(DISTINCT {ITEM_ROW_SQL.format('row')}) FROM items), "
        "n_items, n_further FROM state",
    )
    if (n_codes, n_items) != (said, said - further):
        problems.append(
            f"there are {n_items:,} items with {n_codes:,} codes; the state says {said - further:,}, {said:,}"
        )
    for row, there in connection.execute(INCOMPLETE_SQL):
        problems.append(f"the item of row {row} has {n_codes_of(row)} codes, of which {there} are there")
    for problem, sql in _CHECKS.items():
        problems += (problem.format(row) for (row,) in connection.execute(sql, [FIRST_NAMED_ROW]))
    problems += _check_indexes(connection, settings)
    problems += _check_rows(connection, settings, n_codes, progress)
    return StoreReport(n_items, tuple(problems[:_MOST_TOLD]), len(problems))


def _check_indexes(connection: Connection, settings: Settings) -> list[str]:
    """Compare each index of substrings, read from end to end, with the table."""
    content = "count(*), coalesce(bit_xor(hashint8extended(row, 0) # hashtextextended(code::text, 0)), 0)"
    by_table = _read_by(connection, f"SELECT {content} FROM items", index=None)
    wrong = []
    for number in range(settings.substrings):
        sql = f"SELECT {content} FROM (SELECT code, row FROM items ORDER BY substring_{number}, code, row) i"
        if _read_by(connection, sql, index=number) != by_table:
            wrong.append(f"the index items_by_substring_{number} is not that of the table: REINDEX it")
    return wrong


def _read_by(connection: Connection, sql: str, *, index: int | None) -> tuple[object, ...]:
    ways = {"enable_seqscan": index is None, "enable_indexscan": index is not None}
    ways |= {"enable_indexonlyscan": index is not None, "enable_bitmapscan": False, "enable_sort": index is None}
    for name, is_on in ways.items():
        connection.execute(f"SET LOCAL {name} = {'on' if is_on else 'off'}")
    return connection.execute(sql).fetchall()[0]


def _check_rows(connection: Connection, settings: Settings, n_items: int, progress: Progress | None) -> list[str]:
    wrong = []
    width = None if settings.embeddings is None else settings.embeddings.n_dims
    connection.execute("SET LOCAL enable_seqscan = on")
    connection.execute(
        "DECLARE inspection NO SCROLL CURSOR FOR "
        "SELECT row, length(code), length(embedding), payload::text, fields::text FROM items"
    )
    seen = 0
    while block := connection.execute(f"FETCH {_FETCHED_ROWS} FROM inspection").fetchall():
        for row, n_bits, n_bytes, payload, fields in block:
            if n_bits != settings.n_bits or (n_bytes is None) != (width is None):
                wrong.append(f"row {row} has a code or an embedding of another length than the settings say")
            if (payload is None) != (fields is None) or (
                payload is not None and json.loads(fields) != json.loads(fields_of(payload.encode()))
            ):
                wrong.append(f"row {row} has fields that are not those of its payload")
        seen += len(block)
        if progress:
            progress(seen, n_items)
    return wrong
