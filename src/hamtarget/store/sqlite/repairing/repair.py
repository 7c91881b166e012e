"""A new store of everything that can still be read in a damaged one, which is neither opened by SQLite nor changed."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.encoders import open_encoder
from hamtarget.errors import CorruptFileError, FileError, HamtargetError, InputError, MissingExtraError
from hamtarget.items import Id
from hamtarget.progress import Progress
from hamtarget.search.distinct import distinct
from hamtarget.search.multi import MultiIndex
from hamtarget.store.items.code_rows import (
    FIRST_SEVERAL_ROW,
    IS_FIRST_SQL,
    ITEM_ROW_SQL,
    item_rows,
    numbers_given,
)
from hamtarget.store.items.ids import FIRST_NAMED_ROW, name_checksum, row_checksum, trace_checksum
from hamtarget.store.reports import RepairReport
from hamtarget.store.settings import Settings, settings_of
from hamtarget.store.sqlite.backup import Verify
from hamtarget.store.sqlite.counter import COUNTER_NAME, read_counter
from hamtarget.store.sqlite.creation import ENCODER_NAME
from hamtarget.store.sqlite.engine import FolderEngine
from hamtarget.store.sqlite.index.snapshot import read_snapshot
from hamtarget.store.sqlite.placing import folder_in_progress, put_in_place
from hamtarget.store.sqlite.repairing.raw_pages import Pages
from hamtarget.store.sqlite.repairing.raw_rows import RawRow, Tables, Text
from hamtarget.store.sqlite.repairing.repaired_codes import complete_items
from hamtarget.store.sqlite.tables.database import DATABASE_NAME, create_database, transaction, translated
from hamtarget.store.sqlite.tables.migrations import mark_several
from hamtarget.store.sqlite.tables.state import State, write_state

_MOST_TOLD = 100
_ROWS_AT_ONCE = 1000

_KEEP_NEWEST = """
INSERT INTO items VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?) ON CONFLICT (row) DO UPDATE SET
code = excluded.code, embedding = excluded.embedding, payload = excluded.payload, changed = excluded.changed,
checksum = excluded.checksum WHERE excluded.changed > changed
"""
_GATHERING = """
CREATE TEMP TABLE found_names (row INTEGER PRIMARY KEY, id ANY NOT NULL, checksum INTEGER NOT NULL) STRICT;
CREATE TEMP TABLE gone (row INTEGER PRIMARY KEY, changed INTEGER NOT NULL) STRICT;
"""


_LAST = """
SELECT max(changed), max(row) FILTER (WHERE row < :several), max(row) FILTER (WHERE row >= :several) FROM items
"""


@dataclass
class _Found:
    """Rows that were read and are damaged, and the last change that was seen."""

    n_bad_rows: int = 0
    bad_rows: list[int] = field(default_factory=list)
    last_change: int = 0

    def count_bad(self, row: int | None) -> None:
        self.n_bad_rows += 1
        if row is not None and len(self.bad_rows) < _MOST_TOLD:
            self.bad_rows.append(row)


def repair_folder(source: Path, target: Path, verify: Verify, *, progress: Progress | None) -> RepairReport:
    """Make a new store of what can be read in the folder of a damaged one; see `Store.repair`.

    Args:
        source: the damaged store's folder.
        target: that of the new one; it is not there, or empty.
        verify: checks the new store before it is put in place.
        progress: called with pages read and all pages.
    """
    file = source / DATABASE_NAME
    if not file.is_file():
        raise FileError(f"{source} is no store: it has no {DATABASE_NAME}; nothing can be repaired")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target} is there and is not an empty folder; choose another")
    with translated(target), folder_in_progress(target) as folder:
        roots = _usual_roots(folder / "roots.db")
        # As SQLite sees the store; and, if the last changes are missing, with what lies behind the damage of its log.
        seen = Tables(Pages(file, behind_damage=False), roots)
        state = _read_state(seen)
        noted = read_counter(source / COUNTER_NAME)
        seen_change = 0 if state is None else state.sequence
        is_behind = noted is not None and noted > seen_change
        pages = Pages(file, behind_damage=is_behind)
        tables = Tables(pages, roots)
        state = _read_state(tables)
        index = _find_index(source, state)
        settings, problems = _read_settings(tables, index, source)
        if settings.has_encoder:
            settings, problem = _copy_encoder(source / ENCODER_NAME, folder / ENCODER_NAME, settings)
            problems += problem
        create_database(
            folder / DATABASE_NAME, settings.as_texts(), FIRST_NAMED_ROW, keeps_vectors=settings.keeps_vectors
        )
        with closing(sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.executescript(_GATHERING)
            with transaction(connection):
                report = _gather(connection, tables, pages, settings, state, index, seen_change, noted, progress)
        FolderEngine(folder, read_only=False).close()
        checked = verify(folder, None)
        if not checked.ok:
            raise CorruptFileError(f"what was read of {source} does not make a store: {checked.problems[0]}")
        for leftover in (f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"):
            (folder / leftover).unlink(missing_ok=True)
        if noted is None and pages.log.is_damaged:
            problems.append(
                f"the log is damaged, and the file {COUNTER_NAME} that would tell what belongs to it is missing or "
                "damaged: what lies behind the damage was left out"
            )
        put_in_place(folder, target)
        return replace(report, path=target, problems=(*report.problems, *problems))


def _gather(
    connection: sqlite3.Connection,
    tables: Tables,
    pages: Pages,
    settings: Settings,
    state: State | None,
    index: MultiIndex | None,
    seen_change: int,
    noted: int | None,
    progress: Progress | None,
) -> RepairReport:
    """Write every row that is whole into a new database, and report on the others."""
    found = _Found(last_change=0 if state is None else state.sequence)
    for name in ("items", "names", "deleted"):
        for block in _blocks(tables.rows(tables.roots[name])):
            _WRITERS[name](connection, block, settings, found, True)
            if progress:
                progress(min(len(tables.visited), pages.n_pages), pages.n_pages)
    for block in _blocks(tables.lost_rows()):
        # Rows of all tables: the checksum says which one a row is of.
        for write in _WRITERS.values():
            write(connection, block, settings, found, False)
    if progress:
        progress(pages.n_pages, pages.n_pages)
    n_nameless, n_rowless = _join_names(connection)
    last_change, last_row, last_several_row = connection.execute(_LAST, {"several": FIRST_SEVERAL_ROW}).fetchone()
    sequence = max(found.last_change, last_change or 0, noted or 0)
    next_row = max(numbers_given(last_row, last_several_row), 0 if state is None else state.next_row)
    incomplete, next_row = complete_items(connection, next_row)
    if last_several_row is not None:
        mark_several(connection)
    write_state(connection, State(sequence, next_row, sequence))
    first = IS_FIRST_SQL.format("row")
    (n_items,) = connection.execute(f"SELECT count(*) FROM items WHERE {first}").fetchone()
    (n_new,) = connection.execute(
        f"SELECT count(*) FROM items WHERE changed > ? AND {first}", (seen_change,)
    ).fetchone()
    (n_gone,) = connection.execute(
        f"SELECT count(*) FROM gone WHERE changed > ? AND {first}", (seen_change,)
    ).fetchone()
    is_behind = seen_change < (noted or 0)
    report = RepairReport(
        Path(),
        n_items,
        n_lost_changes=max(0, (noted or 0) - seen_change),
        n_changes_from_log=max(found.last_change, last_change or 0) - seen_change if is_behind else 0,
        n_rows_from_log=n_new if is_behind else 0,
        n_deletions_from_log=n_gone if is_behind else 0,
        n_bad_rows=found.n_bad_rows,
        n_bad_pages=len(tables.bad_pages),
    )
    report = _count_missing(connection, report, index, state, incomplete)
    problems = list(_problems(report, found, state, n_nameless, n_rowless))
    if incomplete:
        problems.append(f"{len(incomplete):,} items have lost some of their codes, and go on with the others")
    return replace(report, problems=tuple(problems))


def _problems(
    report: RepairReport, found: _Found, state: State | None, n_nameless: int, n_rowless: int
) -> Iterator[str]:
    """Yield one line for each kind of thing that did not come back."""
    lost = report.n_lost_changes - report.n_changes_from_log
    if lost:
        yield f"of the last {report.n_lost_changes:,} changes, {lost:,} are lost: the log does not hold them"
    if report.n_bad_pages:
        yield f"{report.n_bad_pages:,} pages are damaged or missing"
    if report.n_bad_rows:
        first = ", ".join(map(str, found.bad_rows[:10]))
        yield f"{report.n_bad_rows:,} rows are damaged; first: {first or 'their numbers are damaged, too'}"
    if report.n_missing:
        first = ", ".join(map(repr, report.missing[:10]))
        yield f"{report.n_missing:,} items that the saved index knows did not come back; first: {first or 'nameless'}"
    if n_nameless:
        yield f"{n_nameless:,} items were left out, because their ids are damaged or missing"
    if n_rowless:
        yield f"{n_rowless:,} ids have no item any more"
    if state is None:
        yield "the store's state is damaged: the number of its last change was taken from its rows"


def _usual_roots(path: Path) -> dict[str, int]:
    """Return where the tables of a new database begin, for one whose first page is damaged."""
    create_database(path, {}, FIRST_NAMED_ROW)
    try:
        with closing(sqlite3.connect(path)) as connection:
            return dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'"))
    finally:
        path.unlink()


def _read_state(tables: Tables) -> State | None:
    for raw in tables.rows(tables.roots["state"]):
        if raw.values is not None and len(raw.values) == 7:
            _, *values, checksum = raw.values
            try:
                state = State._make([value.decode() if isinstance(value, Text) else value for value in values])
            except UnicodeDecodeError:
                continue
            if state.checksum == checksum and state.is_possible:
                return state
    return None


def _read_settings(tables: Tables, index: MultiIndex | None, source: Path) -> tuple[Settings, list[str]]:
    texts = {}
    for raw in tables.index_rows(tables.roots["settings"]):
        if raw.values is not None and len(raw.values) == 2 and all(isinstance(each, Text) for each in raw.values):
            name, value = raw.values
            texts[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    try:
        return settings_of(texts), []
    except CorruptFileError as error:
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


def _blocks(rows: Iterator[RawRow]) -> Iterator[list[RawRow]]:
    block = []
    for row in rows:
        block.append(row)
        if len(block) == _ROWS_AT_ONCE:
            yield block
            block = []
    yield block


def _write_items(
    connection: sqlite3.Connection, block: list[RawRow], settings: Settings, found: _Found, is_own: bool
) -> None:
    whole = []
    for row, values in block:
        if row is not None and values is not None and _is_item(row, values, settings):
            whole.append((row, *values[1:]))
        elif is_own:
            found.count_bad(row)
    connection.executemany(_KEEP_NEWEST, whole)


def _is_item(row: int, values: Any, settings: Settings) -> bool:
    if len(values) != 6:
        return False
    _, code, embedding, payload, changed, checksum = values
    try:
        if row_checksum(row, code, embedding, payload, changed) != checksum:
            return False
        if payload is not None:
            payload.decode()
    except (TypeError, AttributeError, UnicodeDecodeError, struct.error):
        return False
    kept = settings.embeddings
    width = None if kept is None else kept.n_dims * np.dtype(kept.dtype).itemsize
    return len(code) == settings.n_bits // 8 and (None if embedding is None else len(embedding)) == width


def _write_names(
    connection: sqlite3.Connection, block: list[RawRow], settings: Settings, found: _Found, is_own: bool
) -> None:
    whole = []
    for row, values in block:
        id = None if row is None or values is None else _name(row, values)
        if id is not None and values is not None:
            whole.append((row, id, values[2]))
        elif is_own:
            found.count_bad(row)
    connection.executemany("INSERT OR REPLACE INTO found_names VALUES (?, ?, ?)", whole)


def _name(row: int, values: Any) -> Id | None:
    if len(values) != 3:
        return None
    id = values[1]
    if isinstance(id, Text):
        try:
            id = id.decode()
        except UnicodeDecodeError:
            return None
    return id if isinstance(id, str | int) and name_checksum(row, id) == values[2] else None


def _write_traces(
    connection: sqlite3.Connection, block: list[RawRow], settings: Settings, found: _Found, is_own: bool
) -> None:
    whole = []
    for row, values in block:
        if row is not None and values is not None and len(values) == 3 and isinstance(values[1], int):
            if trace_checksum(row, values[1]) == values[2]:
                whole.append((row, values[1]))
                continue
        if is_own:
            found.count_bad(row)
    connection.executemany(
        "INSERT INTO gone VALUES (?, ?) ON CONFLICT (row) DO UPDATE SET changed = max(changed, excluded.changed)", whole
    )


_Write = Callable[[sqlite3.Connection, list[RawRow], Settings, _Found, bool], None]
_WRITERS: dict[str, _Write] = {"items": _write_items, "names": _write_names, "deleted": _write_traces}


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
