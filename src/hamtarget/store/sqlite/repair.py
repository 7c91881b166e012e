"""A new store of everything that SQLite can still read in a damaged one, which is not changed.

SQLite reads a copy of the database: first the row numbers, then a range of them at a time. A range that does not come
back whole is read in halves, down to single rows. So a damaged page costs its own rows, and a page that leads to others
costs the rows below it.
"""

from __future__ import annotations

import shutil
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders import open_encoder
from hamtarget.errors import CorruptFileError, FileError, HamtargetError, InputError, MissingExtraError
from hamtarget.items import Id
from hamtarget.progress import Progress
from hamtarget.search.distinct import distinct
from hamtarget.search.multi import MultiIndex
from hamtarget.store.items.code_rows import (
    FIRST_SEVERAL_ROW,
    INCOMPLETE_SQL,
    IS_FIRST_SQL,
    ITEM_ROW_SQL,
    item_rows,
    numbers_given,
    place_items,
)
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.reports import RepairReport
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.backup import Verify
from hamtarget.store.sqlite.counter import COUNTER_NAME, read_counter
from hamtarget.store.sqlite.engine import FolderEngine
from hamtarget.store.sqlite.folders import ENCODER_NAME, folder_in_progress, put_in_place
from hamtarget.store.sqlite.index.snapshot import read_snapshot
from hamtarget.store.sqlite.losses import LOG_ENDING
from hamtarget.store.sqlite.tables.database import (
    DATABASE_NAME,
    connect,
    create_database,
    read_settings,
    transaction,
    translated,
    wrong_tables,
)
from hamtarget.store.sqlite.tables.rows import (
    COLUMNS,
    is_name_whole,
    is_row_whole,
    is_trace_whole,
    read_records,
    write_items,
    write_names,
)
from hamtarget.store.sqlite.tables.state import State, read_state, write_state

Rows = NDArray[np.int64]

_MOST_TOLD = 100
_ROWS_AT_ONCE = 1000
# Numbers that are ids may be far from each other; those that are given follow each other.
_RANGES = (
    (-(2**63), FIRST_NAMED_ROW - 1),
    (FIRST_NAMED_ROW, FIRST_SEVERAL_ROW - 1),
    (FIRST_SEVERAL_ROW, 2**63 - 1),
)
# Row numbers that give nothing are halved so many times: a page is found among a thousand damaged ones.
_MOST_HALVINGS = 10
# A row takes so many bytes, at least: a file holds no more rows, wherever its pages lead.
_LEAST_ROW_BYTES = 4


class _Table(NamedTuple):
    """A table to read, and to write to.

    Attributes:
        name: name of the table.
        columns: what is read of a row.
        by: index of the table, which holds all of its row numbers.
        indexed: column by which the index is ordered.
        write: statement that takes a row which was read.
        is_whole: returns True if a row has its checksum.
    """

    name: str
    columns: str
    by: str
    indexed: str
    write: str
    is_whole: Callable[..., bool]


# A page that stands in two places of a damaged table may hold a row as it was before.
_ITEMS = _Table(
    "items",
    COLUMNS,
    "items_by_change",
    "changed",
    "INSERT INTO items VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?) ON CONFLICT (row) DO UPDATE SET "
    "code = excluded.code, embedding = excluded.embedding, payload = excluded.payload, changed = excluded.changed, "
    "checksum = excluded.checksum WHERE excluded.changed > changed",
    is_row_whole,
)
_NAMES = _Table(
    "names",
    "row, id, checksum",
    "sqlite_autoindex_names_1",
    "id",
    "INSERT OR REPLACE INTO found_names VALUES (?, ?, ?)",
    is_name_whole,
)
_TRACES = _Table(
    "deleted",
    "row, changed, checksum",
    "deleted_by_change",
    "changed",
    "INSERT INTO gone VALUES (?, ?, ?) ON CONFLICT (row) DO UPDATE SET changed = max(changed, excluded.changed)",
    is_trace_whole,
)
_TABLES = (_ITEMS, _NAMES, _TRACES)
_GATHERING = """
CREATE TEMP TABLE found_names (row INTEGER PRIMARY KEY, id ANY NOT NULL, checksum INTEGER NOT NULL) STRICT;
CREATE TEMP TABLE gone (row INTEGER PRIMARY KEY, changed INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;
"""
_LAST = """
SELECT max(changed), max(row) FILTER (WHERE row < :several), max(row) FILTER (WHERE row >= :several) FROM items
"""


def repair_folder(source: Path, target: Path, verify: Verify, *, progress: Progress | None) -> RepairReport:
    """Make a new store of what can be read in the folder of a damaged one; see `Store.repair`.

    Args:
        source: the damaged store's folder.
        target: that of the new one; it is not there, or empty.
        verify: checks the new store before it is put in place.
        progress: called with rows read and all rows.
    """
    if not (source / DATABASE_NAME).is_file():
        raise FileError(f"{source} is no store: it has no {DATABASE_NAME}; nothing can be repaired")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target} is there and is not an empty folder; choose another")
    log = DATABASE_NAME + LOG_ENDING
    with translated(target), folder_in_progress(target) as folder:
        noted = read_counter(source / COUNTER_NAME)
        copy = folder / "damaged"
        copy.mkdir()
        # A reader, too, may write beside a database.
        for name in (DATABASE_NAME, log):
            if (source / name).exists():
                shutil.copyfile(source / name, copy / name)
        has_log = (copy / log).exists() and (copy / log).stat().st_size > 0
        with closing(_Damaged(copy, source)) as damaged:
            state = _read_state(damaged.connection)
            index = _find_index(source, state)
            settings, problems = _read_settings(damaged.connection, index, source)
            if settings.has_encoder:
                settings, problem = _copy_encoder(source / ENCODER_NAME, folder / ENCODER_NAME, settings)
                problems += problem
            create_database(folder / DATABASE_NAME, settings.as_texts(), FIRST_NAMED_ROW)
            with closing(sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.executescript(_GATHERING)
                with transaction(connection):
                    bad_rows = _read_tables(damaged, connection, settings, index, progress)
                    report = _gather(connection, damaged, bad_rows, state, index, noted)
        shutil.rmtree(copy)
        FolderEngine(folder, read_only=False).close()
        checked = verify(folder, None)
        if not checked.ok:
            raise CorruptFileError(f"what was read of {source} does not make a store: {checked.problems[0]}")
        for leftover in (f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"):
            (folder / leftover).unlink(missing_ok=True)
        if noted is None and has_log:
            problems.append(
                f"the file {COUNTER_NAME} is missing or damaged: if the log is damaged, too, the changes behind its "
                "damage are lost, and nothing says how many"
            )
        put_in_place(folder, target)
        return replace(report, path=target, problems=(*report.problems, *problems))


class _Damaged:
    """A damaged database, as far as SQLite reads it.

    Attributes:
        connection: reads the database.
        unknown_tables: tables that are not those of a store; nothing is read of them.
        unreadable_tables: tables with pages that SQLite could not read so far.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        """Open the database in a folder, a copy of that in `source`.

        Raises:
            CorruptFileError: SQLite cannot read it at all.
        """
        self.unreadable_tables: set[str] = set()
        self._most_rows = sum(file.stat().st_size for file in folder.iterdir()) // _LEAST_ROW_BYTES
        try:
            self.connection = connect(folder / DATABASE_NAME, "ro")
            # A page with one damaged row is read for its other rows.
            self.connection.execute("PRAGMA cell_size_check = OFF")
            # A damaged line of the schema does not hide the tables of the other lines.
            self.connection.execute("PRAGMA writable_schema = ON")
            # Bytes that are no text do not have their row's checksum: that is noticed later, for each row.
            self.connection.text_factory = lambda text: text.decode("utf-8", "replace")
            wrong = wrong_tables(self.connection)
        except sqlite3.DatabaseError as error:
            raise CorruptFileError(
                f"{source}: SQLite cannot read {DATABASE_NAME} ({error}); restore the store from a backup"
            ) from error
        self.unknown_tables = [table.name for table in _TABLES if table.name in wrong]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def row_numbers(self, table: _Table) -> Rows:
        """Return the row numbers that a table or its index in the database gives.

        The table is read from either end. What is between two damaged pages is read in halves, until one half after
        another gives nothing.
        """
        found = array("q")
        ranges = [(*ends, 0) for ends in _RANGES]
        while ranges:
            low, high, n_tries = ranges.pop()
            n_before = len(found)
            after = self._follow(found, table, low, high, 1)
            if after is None:
                continue
            self.unreadable_tables.add(table.name)
            low = after
            before = self._follow(found, table, low, high, -1)
            if before is None:
                continue
            high = before
            n_tries = n_tries + 1 if n_before == len(found) else 0
            if low <= high and n_tries <= _MOST_HALVINGS:
                middle = (low + high) // 2
                ranges += [(middle + 1, high, n_tries), (low, middle, n_tries)]
        for direction in ("ASC", "DESC"):
            sql = f"SELECT row FROM {table.name} INDEXED BY {table.by} ORDER BY {table.indexed} {direction} LIMIT ?"
            with suppress(sqlite3.DatabaseError):
                found.extend(row for (row,) in self.connection.execute(sql, (self._most_rows,)))
                break
        return distinct(np.array(found, dtype=np.int64))

    def _follow(self, found: array[int], table: _Table, low: int, high: int, step: int) -> int | None:
        """Add row numbers from one end of a range; return where a damaged page ended that, or None if none did."""
        direction = "ASC" if step > 0 else "DESC"
        sql = f"SELECT row FROM {table.name} NOT INDEXED WHERE row BETWEEN ? AND ? ORDER BY row {direction} LIMIT ?"
        # Python looks ahead: it loses the last row in front of a damaged page, unless that is the only one wanted.
        for limit in (self._most_rows, 1):
            n_before = len(found)
            with suppress(sqlite3.DatabaseError):
                found.extend(row for (row,) in self.connection.execute(sql, (low, high, limit)))
                if limit > 1:
                    return None
            if len(found) > n_before:
                low, high = (found[-1] + 1, high) if step > 0 else (low, found[-1] - 1)
        return low if step > 0 else high

    def read(self, table: _Table, rows: list[int]) -> Iterator[Any]:
        """Yield those of the rows, ascending, that SQLite reads; it may end at a damaged page between them."""
        sql = f"SELECT {table.columns} FROM {table.name} NOT INDEXED WHERE row"
        with suppress(sqlite3.DatabaseError):
            if len(rows) == 1:
                # A range would be read up to the row behind it, which may be in a damaged page.
                yield from self.connection.execute(f"{sql} = ?", rows)
            else:
                found = self.connection.execute(f"{sql} BETWEEN ? AND ? ORDER BY row", (rows[0], rows[-1]))
                yield from islice(found, 2 * len(rows))


def _read_tables(
    damaged: _Damaged,
    connection: sqlite3.Connection,
    settings: Settings,
    index: MultiIndex | None,
    progress: Progress | None,
) -> Rows:
    """Write all rows that are whole to a new database; return the numbers of rows that are damaged or cannot be read.

    Args:
        damaged: what is read.
        connection: to the new database, in a transaction.
        settings: those of the store.
        index: the saved index: what it knows is looked for as well, unless it was deleted since.
        progress: called with rows read and all rows.
    """
    numbers = {table: damaged.row_numbers(table) for table in _TABLES if table.name not in damaged.unknown_tables}
    saved = np.empty(0, dtype=np.int64) if index is None else index.ids()
    items = np.union1d(numbers.get(_ITEMS, saved), saved)
    further = {_ITEMS: items, _NAMES: item_rows(items[items >= FIRST_NAMED_ROW])}
    wanted = {table: np.union1d(own, further.get(table, own)) for table, own in numbers.items()}
    n_done, n_rows = 0, sum(map(len, wanted.values()))
    bad: list[Rows] = [np.empty(0, dtype=np.int64)]
    for table, own in numbers.items():
        check = _item_check(settings) if table is _ITEMS else table.is_whole
        missing = array("q")
        for n_looked_at, not_whole in _read_table(damaged, connection, table, wanted[table], check):
            n_done += n_looked_at
            missing.extend(not_whole)
            if progress:
                progress(n_done, n_rows)
        bad.append(np.intersect1d(np.array(missing, dtype=np.int64), own))
    return np.concatenate(bad)


def _read_table(
    damaged: _Damaged,
    connection: sqlite3.Connection,
    table: _Table,
    wanted: Rows,
    is_whole: Callable[..., bool],
) -> Iterator[tuple[int, list[int]]]:
    """Write the wanted rows of a table that are whole; yield how many were looked at, and which of these are not."""
    ranges = [wanted[start : start + _ROWS_AT_ONCE].tolist() for start in range(0, len(wanted), _ROWS_AT_ONCE)][::-1]
    while ranges:
        rows = ranges.pop()
        whole = [row for row in damaged.read(table, rows) if is_whole(*row)]
        connection.executemany(table.write, whole)
        missing = sorted(set(rows).difference(row[0] for row in whole))
        if len(rows) == 1:
            yield 1, missing
            continue
        yield len(rows) - len(missing), []
        middle = len(missing) // 2
        ranges += [half for half in (missing[middle:], missing[:middle]) if half]


def _item_check(settings: Settings) -> Callable[..., bool]:
    """Return a check of rows of items: a forged one has its checksum, and a code of another length."""
    kept = settings.embeddings
    code_bytes = settings.n_bits // 8
    embedding_bytes = None if kept is None else kept.n_dims * np.dtype(kept.dtype).itemsize

    def check(row: int, code: Any, embedding: Any, payload: Any, changed: int, checksum: int) -> bool:
        if not is_row_whole(row, code, embedding, payload, changed, checksum) or len(code) != code_bytes:
            return False
        try:
            (payload or b"").decode()
        except UnicodeDecodeError:
            return False
        return (None if embedding is None else len(embedding)) == embedding_bytes

    return check


def _gather(
    connection: sqlite3.Connection,
    damaged: _Damaged,
    bad_rows: Rows,
    state: State | None,
    index: MultiIndex | None,
    noted: int | None,
) -> RepairReport:
    """Make the rows that were read those of a store, and report on the others."""
    n_nameless, n_rowless = _join_names(connection)
    last_change, last_row, last_several_row = connection.execute(_LAST, {"several": FIRST_SEVERAL_ROW}).fetchone()
    (last_deletion,) = connection.execute("SELECT max(changed) FROM gone").fetchone()
    seen = max(last_change or 0, last_deletion or 0) if state is None else state.sequence
    sequence = max(seen, last_change or 0, noted or 0)
    next_row = max(numbers_given(last_row, last_several_row), 0 if state is None else state.next_row)
    incomplete, next_row = _complete_items(connection, next_row)
    write_state(connection, State(sequence, next_row, sequence))
    (n_items,) = connection.execute(f"SELECT count(*) FROM items WHERE {IS_FIRST_SQL.format('row')}").fetchone()
    report = RepairReport(Path(), n_items, n_lost_changes=max(0, (noted or 0) - seen), n_bad_rows=len(bad_rows))
    report = _count_missing(connection, report, index, state, incomplete)
    problems = list(_problems(report, damaged, bad_rows, state, n_nameless, n_rowless))
    if incomplete:
        problems.append(f"{len(incomplete):,} items have lost some of their codes, and go on with the others")
    return replace(report, problems=tuple(problems))


def _problems(
    report: RepairReport, damaged: _Damaged, bad_rows: Rows, state: State | None, n_nameless: int, n_rowless: int
) -> Iterator[str]:
    """Yield one line for each kind of thing that did not come back."""
    if report.n_lost_changes:
        yield f"the last {report.n_lost_changes:,} changes are lost: the database and its log do not hold them"
    for name in damaged.unknown_tables:
        yield f"the description of table {name} is damaged: no row of it was read"
    for name in sorted(damaged.unreadable_tables):
        yield f"pages of table {name} are damaged or missing"
    if report.n_bad_rows:
        first = ", ".join(map(str, bad_rows[:10].tolist()))
        yield f"{report.n_bad_rows:,} rows are damaged; first: {first}"
    if report.n_missing:
        first = ", ".join(map(repr, report.missing[:10]))
        yield f"{report.n_missing:,} items that the saved index knows did not come back; first: {first or 'nameless'}"
    if n_nameless:
        yield f"{n_nameless:,} items were left out, because their ids are damaged or missing"
    if n_rowless:
        yield f"{n_rowless:,} ids have no item any more"
    if state is None:
        yield "the store's state is damaged: the number of its last change was taken from its rows"


def _read_state(damaged: sqlite3.Connection) -> State | None:
    with suppress(sqlite3.DatabaseError, CorruptFileError):
        return read_state(damaged)
    return None


def _read_settings(damaged: sqlite3.Connection, index: MultiIndex | None, source: Path) -> tuple[Settings, list[str]]:
    try:
        return read_settings(damaged), []
    except (sqlite3.DatabaseError, CorruptFileError) as error:
        if index is None:
            raise CorruptFileError(
                f"{source}: neither its settings nor its saved index can be read; restore it from a backup"
            ) from error
    has_encoder = (source / ENCODER_NAME).is_dir()
    radius = 0 if index.radius is None else index.radius
    substrings = radius + 1 if index.is_planned else index.substrings
    settings = Settings(index.n_bits, radius, substrings, index.embeddings, has_encoder=has_encoder)
    return settings, ["the settings are damaged: they were taken from the saved index, and durability is 'full'"]


def _find_index(source: Path, state: State | None) -> MultiIndex | None:
    """Return the saved index that belongs to a state, or any that is whole where the state is not known."""
    for file in sorted(source.glob("index-*.ham")):
        if state is None or state.snapshot == file.name:
            index = read_snapshot(file, None)
            if index is not None:
                return index
    return None


def _copy_encoder(source: Path, target: Path, settings: Settings) -> tuple[Settings, list[str]]:
    try:
        open_encoder(source)
    except (MissingExtraError, InputError):
        # It may be whole: that cannot be seen here.
        pass
    except HamtargetError as error:
        return replace(settings, has_encoder=False), [f"the encoder was left out: {error}"]
    shutil.copytree(source, target)
    return settings, []


def _join_names(connection: sqlite3.Connection) -> tuple[int, int]:
    """Give items their names, without what was deleted; return how many items have none, and names no item."""
    item_row = ITEM_ROW_SQL.format("row")
    connection.execute(
        "DELETE FROM items WHERE EXISTS "
        "(SELECT 1 FROM gone WHERE gone.row = items.row AND gone.changed > items.changed)"
    )
    # An id that was deleted and put again has another row: the later one counts.
    connection.execute(
        "INSERT OR IGNORE INTO names SELECT row, id, checksum FROM found_names "
        "WHERE row IN (SELECT row FROM items) ORDER BY row DESC"
    )
    nameless = f"FROM items WHERE row >= {FIRST_NAMED_ROW} AND {item_row} NOT IN (SELECT row FROM names)"
    (n_nameless,) = connection.execute(f"SELECT count(DISTINCT {item_row}) {nameless}").fetchone()
    connection.execute(f"DELETE {nameless}")
    (n_rowless,) = connection.execute(
        "SELECT count(*) FROM found_names WHERE row NOT IN (SELECT row FROM items) "
        "AND row NOT IN (SELECT row FROM gone)"
    ).fetchone()
    return n_nameless, n_rowless


def _count_missing(
    connection: sqlite3.Connection,
    report: RepairReport,
    index: MultiIndex | None,
    state: State | None,
    incomplete: set[int],
) -> RepairReport:
    """Return a report that names items of the saved index that did not come back and were not deleted since."""
    if index is None or state is None:
        return report
    here = np.fromiter((row for (row,) in connection.execute("SELECT row FROM items")), np.int64)
    gone = np.fromiter((row for (row,) in connection.execute("SELECT row FROM gone")), np.int64)
    lost = np.setdiff1d(np.setdiff1d(index.ids(), here), gone)
    missing = [row for row in distinct(item_rows(lost)).tolist() if row not in incomplete]
    ids: list[Id] = [row for row in missing if row < FIRST_NAMED_ROW][:_MOST_TOLD]
    for row in missing:
        if len(ids) >= _MOST_TOLD:
            break
        if row >= FIRST_NAMED_ROW:
            ids += (id for (id,) in connection.execute("SELECT id FROM found_names WHERE row = ?", (row,)))
    return replace(report, n_missing=len(missing), missing=tuple(ids))


def _complete_items(connection: sqlite3.Connection, next_row: int) -> tuple[set[int], int]:
    """Give items of which codes are missing rows for those that are left, because a row says how many there are.

    Args:
        connection: in a transaction; every item has its name.
        next_row: the next number to give.

    Returns:
        First rows that these items had, and the next number to give.
    """
    incomplete = {row for row, _ in connection.execute(INCOMPLETE_SQL)}
    for row in sorted(incomplete):
        own = "SELECT row FROM items WHERE row >= ? AND row < ? + 64"
        rows = sorted(number for (number,) in connection.execute(own, (row, row)))
        ((id, changed),) = connection.execute(
            "SELECT id, changed FROM names JOIN items USING (row) WHERE row = ?", (row,)
        ).fetchall()
        found = read_records(connection, rows)
        records = [found[number] for number in rows]
        connection.executemany("DELETE FROM items WHERE row = ?", ((number,) for number in rows))
        connection.execute("DELETE FROM names WHERE row = ?", (row,))
        placed = place_items([id], [len(rows)], {}, next_row)
        next_row, first = placed.next_row, placed.rows[0]
        embeddings = [record[2] for record in records]
        write_items(
            connection,
            range(first, first + len(rows)),
            [record[1] for record in records],
            [each for each in embeddings if each is not None] or None,
            [record[3] for record in records],
            changed=changed,
        )
        write_names(connection, placed.names)
    return incomplete, next_row
