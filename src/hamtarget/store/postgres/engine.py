"""An open store in PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._core import _native
from hamtarget.answer import Answer, Costs, Hits
from hamtarget.codes import Codes
from hamtarget.encoders import open_encoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ClosedError, CorruptFileError, FileError, InputError, ReadOnlyError
from hamtarget.filters import Filter
from hamtarget.items import Id, Item
from hamtarget.progress import Progress
from hamtarget.query import Work
from hamtarget.search.multi import MultiIndex
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.search.pairs import pairs_within
from hamtarget.search.requests import Request
from hamtarget.store.backend import FindInCells
from hamtarget.store.forks import tell_of_forks
from hamtarget.store.groups.kept import ReadGroups
from hamtarget.store.groups.tables import Kind
from hamtarget.store.items.code_rows import IS_FIRST_SQL, N_CODES_SQL, item_rows
from hamtarget.store.items.ids import FIRST_NAMED_ROW, is_direct
from hamtarget.store.items.item_hits import find_items
from hamtarget.store.items.item_pairs import name_pairs, pairs_of_items
from hamtarget.store.postgres.address import Address, parse_address
from hamtarget.store.postgres.bucket_probes import Probed, probe
from hamtarget.store.postgres.connections import Connections, snapshot
from hamtarget.store.postgres.filters import where, where_item
from hamtarget.store.postgres.finding import Finder, id_array, read_has_several, read_n_codes, read_n_items
from hamtarget.store.postgres.group_tables import GroupsInDatabase
from hamtarget.store.postgres.inspection import inspect, measure
from hamtarget.store.postgres.rows import (
    ITEM_COLUMNS,
    ITEM_SIZE,
    code_of,
    copy_out,
    find_names,
    integers,
    item_of,
    name_of,
    only_row,
    scan_blocks,
)
from hamtarget.store.postgres.schema import create_tables, open_tables
from hamtarget.store.postgres.writing import PostgresWriting
from hamtarget.store.reports import BackupReport, Pair, StoreReport, StoreStats
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

T = TypeVar("T")

# Queries of a batch whose hits are re-ranked first; later parts have as many as find about so many rows.
_FIRST_RANKED = 64
_RANKED_ROWS = 65_536
# Traces of deleted items are kept for so many changes: who follows the store and is further behind reads all of it.
_KEPT_CHANGES = 10_000
_WANTED = """
    FROM items i LEFT JOIN names n ON n.row = i.row
    WHERE i.row = ANY($1::bigint[]) OR i.row = ANY(ARRAY(SELECT row FROM names WHERE name = ANY($2::bytea[])))
"""
# A sample of less than one item in so many is drawn from some pages of the table, which hold half as many times more.
_PAGES_SHARE = 20


def create_in_database(text: str, settings: Settings, encoder: Encoder | None) -> None:
    """Create an empty store at an address.

    Raises:
        FileError: there is something already. ServerError, and its kind: the server cannot be reached, or refuses.
    """
    address = parse_address(text)
    files = {} if encoder is None else _encoder_files(encoder)
    connections = Connections(address, read_only=False, asynchronous=False)
    try:
        with connections.translated(), connections.one() as connection:
            create_tables(connection, address, settings, files)
    finally:
        connections.close()


def _passing(connection: Connection, filter: Filter) -> tuple[str, list[str]]:
    """Return a filter as a condition of SQL for any row of `items i`, and its parameters."""
    return where_item(filter, 1) if read_has_several(connection) else where(filter, 1)


def _encoder_files(encoder: Encoder) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "encoder"
        encoder.save(place)
        files = [file for file in place.rglob("*") if file.is_file()]
        return {file.relative_to(place).as_posix(): file.read_bytes() for file in files}


class PostgresEngine:
    """A store in a PostgreSQL database, held open.

    Attributes:
        address: where the store is.
        read_only: True if it was opened for reading only.
        settings: those that the store was created with.
    """

    def __init__(self, text: str, *, read_only: bool) -> None:
        """Open the store at an address.

        Raises:
            FileError: there is no store. ServerError, and its kind: the server cannot be reached, or refuses.
        """
        self.address: Address = parse_address(text)
        self.read_only = read_only
        self._unusable = ""
        self._writing: PostgresWriting | None = None
        self._write_lock = threading.RLock()
        self._encoder_folder: str | None = None
        connections = Connections(self.address, read_only=read_only, asynchronous=False)
        try:
            with connections.translated(), connections.one() as connection:
                self.settings: Settings = open_tables(connection, self.address)
            if self.settings.durability == "os":
                connections.close()
                connections = Connections(self.address, read_only=read_only, asynchronous=True)
        except BaseException:
            connections.close()
            raise
        self._connections = connections
        self._finder = Finder(self.settings)
        self._groups = GroupsInDatabase(connections, self.settings, self._finder, read_only=read_only)
        tell_of_forks(self)

    @property
    def path(self) -> str:
        """The address without its password."""
        return str(self.address)

    def close(self) -> None:
        """Close the connections."""
        if self._unusable:
            return
        with self._write_lock:
            self._check_between_transactions("close")
            self._unusable = "was closed; open the store again"
            self._connections.close()
            if self._encoder_folder is not None:
                shutil.rmtree(self._encoder_folder, ignore_errors=True)

    def after_fork(self) -> None:
        """Make the store unusable in a process that was forked from this one."""
        self._unusable = self._unusable or (
            "was opened by the process that this one was forked from; open the store again"
        )

    def check_open(self) -> None:
        """Check that the store is open and was opened by this process.

        Raises:
            ClosedError: it is not.
        """
        if self._unusable:
            raise ClosedError(f"{self.address} {self._unusable}")

    @property
    def substrings(self) -> int:
        """Number of substrings by which codes are looked up."""
        return self.settings.substrings

    @property
    def memory(self) -> int:
        """0, because the index is the server's."""
        return 0

    @property
    def sequence(self) -> int:
        """Number of the last change."""
        return int(self._read(lambda connection: only_row(connection, "SELECT sequence FROM state"))[0])

    @property
    def is_settled(self) -> bool:
        """False: every search asks the server."""
        return False

    def open_encoder(self) -> Encoder:
        """Open the encoder that was saved with the store."""
        files = self._read(lambda connection: connection.execute("SELECT name, content FROM encoder").fetchall())
        if self._encoder_folder is None:
            self._encoder_folder = tempfile.mkdtemp(prefix="hamtarget-encoder-")
        folder = Path(self._encoder_folder)
        for name, content in files:
            relative = PurePosixPath(name)
            # A forged table does not lead out of the folder.
            if relative.is_absolute() or ".." in relative.parts:
                raise CorruptFileError(f"{self.address}: the encoder has a file {name!r}; restore the database")
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).write_bytes(bytes(content))
        if not files:
            raise FileError(f"{self.address} has lost its encoder; restore the database from a copy, or pass codes")
        return open_encoder(folder)

    def count(self, filter: Filter | None, limits: _native.Limits | None = None) -> int:
        """Return the number of items that pass."""
        if not filter:
            return self._read(read_n_items, limits)
        condition, parameters = where(filter, 1)
        sql = f"SELECT count(*) FROM items WHERE {condition}"

        def count_passing(connection: Connection) -> int:
            if limits is not None:
                limits.take(rows=read_n_codes(connection))
            return int(only_row(connection, sql, parameters)[0])

        return self._read(count_passing, limits)

    def get(self, ids: list[Id], limits: _native.Limits | None = None) -> list[Item | None]:
        """Return the items of these ids."""
        wanted = [
            integers(id for id in ids if is_direct(id)),
            # With several codes, an integer has a name as well.
            [name_of(id) for id in ids],
        ]

        def get_wanted(connection: Connection) -> list[tuple[Any, ...]]:
            if limits is not None:
                n_rows, n_bytes = only_row(
                    connection,
                    f"SELECT coalesce(sum({N_CODES_SQL.format('i.row')}), 0), coalesce(sum({ITEM_SIZE}), 0) {_WANTED}",
                    wanted,
                )
                limits.take(rows=int(n_rows), bytes=int(n_bytes))
            return connection.execute(f"SELECT {ITEM_COLUMNS} {_WANTED}", wanted, binary=True).fetchall()

        records = self._read(get_wanted, limits) if limits is None else self._read_snapshot(get_wanted, limits)
        found = {item.id: item for item in (item_of(record, self.settings) for record in records)}
        return [found.get(id) for id in ids]

    def scan(self, filter: Filter | None, limits: _native.Limits | None = None) -> Iterator[Item]:
        """Yield all items that pass."""
        self.check_open()
        condition, parameters = where(filter or Filter(()), 1)
        condition = f"{condition} AND {IS_FIRST_SQL.format('i.row')}"
        with (
            self._connections.translated(),
            self._connections.own(limits) as connection,
            snapshot(connection),
        ):
            for block in scan_blocks(connection, condition, parameters, limits):
                for record in block:
                    self.check_open()
                    yield item_of(record, self.settings)

    @contextmanager
    def write(self) -> Iterator[PostgresWriting]:
        """Begin a transaction, or join that of this thread; at the end all of it is committed, or nothing."""
        self._check_writable()
        with self._write_lock:
            self.check_open()
            if self._writing is not None:
                with self._writing.part():
                    yield self._writing
                return
            try:
                with self._connections.transaction() as connection:
                    with self._connections.translated():
                        writing = self._writing = PostgresWriting(connection, self._connections)
                    yield writing
                    with self._connections.translated():
                        writing.finish()
            finally:
                self._writing = None

    def answer_code(self, code: ArrayLike, radius: int | None, limit: int | None, is_nearest: bool) -> Hits | None:
        """Return None: a search asks the server, and takes the usual way."""
        return None

    def find_one(self, request: Request, filter: Filter | None) -> Hits:
        """Return the hits of a request for one query."""
        is_plain = not filter and not request.rerank and not request.costs and request.logits is None
        if is_plain and request.radius < self.settings.substrings:
            quickly = self._read(lambda connection: self._finder.near_one(connection, request), request.limits)
            if quickly is not None:
                return quickly
        return self.find(request, filter)[0]

    def find(self, request: Request, filter: Filter | None) -> Answer:
        """Return the hits of a request for any number of queries, or the items that their codes match."""
        return find_items(lambda codes: self._find_codes(codes, filter), request)

    @property
    def has_several(self) -> bool:
        """True if an item has several codes."""
        return self._read(read_has_several)

    def _find_codes(self, request: Request, filter: Filter | None) -> Answer:
        """Return the codes that a request leads to."""
        if not len(request.codes):
            return self._new_index().find(request)
        if request.logits is None and not request.rerank and not request.costs:
            quickly = self._read(
                lambda connection: self._finder.find_at_once(connection, request, filter), request.limits
            )
            if quickly is not None:
                return quickly.hits(len(request.codes), request.limit)

        def find(connection: Connection) -> Answer:
            if request.logits is not None:
                return self._probe(connection, request, filter)
            if request.rerank and request.is_nearest and request.limit is None:
                return self._compare_all(connection, request, filter)
            if request.rerank:
                return self._find_ranked(connection, request, filter)
            return self._find_plain(connection, request, filter)

        hits = self._read_snapshot(find, request.limits)
        return hits if request.costs else hits.with_costs(None)

    def _find_plain(self, connection: Connection, request: Request, filter: Filter | None) -> Answer:
        found = self._finder.find(connection, request, filter)
        hits = found.hits(len(request.codes), request.limit)
        return hits if found.work is None else hits.with_costs(found.work.costs())

    def _find_ranked(self, connection: Connection, request: Request, filter: Filter | None) -> Answer:
        """Return the hits of a search that re-ranks them.

        What ranks the hits of an index ranks those of an index of nothing but the rows that were found. There is one
        for some of the queries after others, because it holds the embeddings of all rows that these find.
        """
        parts: list[Answer] = []
        ids: dict[int, Id] = {}
        start, size = 0, _FIRST_RANKED
        while start < len(request.codes):
            part = request.part(start, start + size)
            found = self._finder.find(connection, part, filter)
            rows = np.unique(found.rows)
            index = self._index_of(connection, f"row = ANY('{integers(rows.tolist())}'::bigint[])", request.limits)
            hits = index.find(part._replace(limits=None))
            if found.work is not None and hits.costs is not None:
                hits = hits.with_costs(found.work.costs(hits.costs.comparisons))
            parts.append(hits)
            ids.update(found.ids)
            start += size
            size = max(1, min(4 * size, size * _RANKED_ROWS // max(1, len(rows))))
        hits = Answer.join(parts)
        return hits.with_names(partial(id_array, ids)) if ids else hits

    def _compare_all(self, connection: Connection, request: Request, filter: Filter | None) -> Answer:
        """Return the hits of a search that compares the embeddings of all rows, or of all that pass a filter."""
        condition = "TRUE"
        if filter:
            passing, parameters = _passing(connection, filter)
            rows = connection.execute(f"SELECT row FROM items i WHERE {passing}", parameters).fetchall()
            condition = f"row = ANY('{integers(row for (row,) in rows)}'::bigint[])"
        index = self._index_of(connection, condition, request.limits)
        return self._named(connection, index.find(request._replace(costs=True)))

    def _named(self, connection: Connection, hits: Answer) -> Answer:
        """Return hits with the names of those rows that are not their own ids."""
        named = [row for row in np.unique(item_rows(hits.rows)).tolist() if row >= FIRST_NAMED_ROW]
        return hits.with_names(partial(id_array, find_names(connection, named))) if named else hits

    def _probe(self, connection: Connection, request: Request, filter: Filter | None) -> Answer:
        """Return the hits of a probe for any number of queries."""
        n_items = read_n_codes(connection)
        if request.budget >= n_items and not request.rerank:
            # So much finds exactly what a search does.
            exact = request._replace(logits=None, budget=0, costs=True)
            return self._find_plain(connection, exact, filter)
        hits = Answer.join(
            [
                self._probe_one(connection, request.part(number, number + 1), filter, n_items)
                for number in range(len(request.codes))
            ]
        )
        return self._named(connection, hits)

    def _probe_one(self, connection: Connection, request: Request, filter: Filter | None, n_items: int) -> Answer:
        """Return the hits of one query among the rows that its budget leads to, ranked by an index of these."""
        limits = request.limits
        if request.budget >= n_items:
            exact = request._replace(
                logits=None, budget=0, limit=None, limits=limits and limits.without_hits(), threads=1, costs=True
            )
            found = self._finder.find(connection, exact, filter)
            probed = Probed(np.unique(found.rows), *found.total_work())
        else:
            probed = probe(connection, self.settings, request, n_items)
        if limits is not None:
            limits.take(rows=probed.candidates)
        condition = f"row = ANY('{integers(probed.rows.tolist())}'::bigint[])"
        if filter:
            passing, parameters = _passing(connection, filter)
            rows = connection.execute(f"SELECT row FROM items i WHERE {condition} AND {passing}", parameters).fetchall()
            condition = f"row = ANY('{integers(row for (row,) in rows)}'::bigint[])"
        index = self._index_of(connection, condition, limits)
        alone = request._replace(budget=max(request.budget, len(index)), limits=None, costs=True)
        hits = index.find(alone)
        comparisons = np.zeros(1, dtype=np.int64) if hits.costs is None else hits.costs.comparisons
        if limits is not None:
            limits.take(hits=max(len(hits.rows), int(comparisons[0])))
        return hits.with_costs(Costs(np.array([probed.buckets]), np.array([probed.candidates]), comparisons))

    def sample_codes(self, n: int, seed: int) -> Codes:
        """Return codes of `n` items drawn at random, or of all."""
        found = self._read(lambda connection: self._drawn(connection, "code", n, seed))
        codes = [code_of(code, self.settings.n_bits) for (code,) in found]
        return np.stack(codes) if codes else np.empty((0, self.settings.n_bits // 8), dtype=np.uint8)

    def sample_ids(self, n: int, seed: int) -> list[Id]:
        """Return ids of `n` items drawn at random, or of all."""
        found = self._read(lambda connection: self._drawn(connection, "row", n, seed))
        return list(self._ids_of(np.array([row for (row,) in found], dtype=np.int64)).values())

    def _drawn(self, connection: Connection, column: str, n: int, seed: int) -> list[tuple[Any, ...]]:
        """Return `n` codes, or rows of items, drawn at random, or all; from a few pages of a large table."""
        order = "ORDER BY hashint8extended(row, $1::bigint), row LIMIT $2::bigint"
        if column == "row":
            order = f"WHERE {IS_FIRST_SQL.format('row')} {order}"
        n_items = read_n_items(connection)
        if n_items > _PAGES_SHARE * n:
            some = f"SELECT {column} FROM items TABLESAMPLE SYSTEM ($3::real) REPEATABLE ($1::double precision) {order}"
            percent = 100 * _PAGES_SHARE / 2 * n / n_items
            found = connection.execute(some, [seed, n, percent], binary=True).fetchall()
            if len(found) == n:
                return found
        return connection.execute(f"SELECT {column} FROM items {order}", [seed, n], binary=True).fetchall()

    def whole_index(self) -> MultiIndex:
        """Return an index of all rows, copied into memory."""
        index = self._read_snapshot(self._index_of)
        # As in the database, all rows are in tables then.
        index.compact()
        return index

    @property
    def has_cells(self) -> bool:
        """False: vectors are probed by their codes."""
        return False

    def cells(self) -> NeighborIndex | None:
        """Return None: there are no cells."""
        return None

    def make_cells(self, asked: NeighborIndex, work: Work) -> None:
        """Refuse: there are no cells."""
        raise InputError(f"{self.path} is in PostgreSQL, where vectors are not kept in cells")

    def find_in_cells(self, find: FindInCells) -> Answer | None:
        """Return None: there are no cells."""
        return None

    @property
    def scanned_rows(self) -> int:
        """0: the database has every row in its tables."""
        return 0

    def read_tunings(self) -> dict[int, str]:
        """Return what was measured, by `k`."""
        if not self.settings.keeps_vectors:
            return {}
        return dict(self._read(lambda connection: connection.execute("SELECT k, value FROM tuning").fetchall()))

    def write_tuning(self, k: int, text: str) -> None:
        """Keep what was measured."""
        self._check_writable()
        with self._write_lock:
            self._check_between_transactions("tune")
            with self._connections.transaction() as connection, self._connections.translated():
                connection.execute(
                    "INSERT INTO tuning VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET value = excluded.value",
                    [k, text],
                )

    def pairs(self, radius: int, work: Work) -> Iterator[Pair]:
        """Yield all pairs within the radius."""
        work = work.started()
        limits = work.limits
        index = self._read_snapshot(lambda connection: self._index_of(connection, limits=limits), limits)
        pairs = pairs_within(index, radius, work=work)
        yield from name_pairs(pairs_of_items(pairs), self._ids_of, limits)

    def ask_groups(self, kind: Kind, answer: ReadGroups[T], work: Work) -> T:
        """Bring groups to the last change, and return what `answer` reads of them."""
        self.check_open()
        return self._groups.ask(kind, answer, work.started())

    def compact(self) -> None:
        """Vacuum the tables, so that searches need only the B-trees, and remove old traces of deleted items."""
        self._check_writable()
        with self._write_lock:
            self._check_between_transactions("compact")
            with self._connections.transaction() as connection, self._connections.translated():
                (sequence,) = only_row(connection, "SELECT sequence FROM state FOR UPDATE")
                forgotten = max(0, sequence - _KEPT_CHANGES)
                connection.execute("DELETE FROM deleted WHERE changed <= $1", [forgotten])
                connection.execute("UPDATE state SET forgotten = greatest(forgotten, $1::bigint)", [forgotten])
            with self._connections.translated(), self._connections.own() as connection:
                for table in ("items", "names", "deleted", "state"):
                    connection.execute(f"VACUUM (ANALYZE) {table}")

    def verify(self, *, progress: Progress | None) -> StoreReport:
        """Check the tables against each other, and report what is wrong."""
        return self._read_snapshot(lambda connection: inspect(connection, self.settings, progress=progress))

    def backup(
        self, target: Path, verify: Callable[[Path, Progress | None], StoreReport], *, progress: Progress | None
    ) -> BackupReport:
        """Refuse: PostgreSQL has its own tools for this.

        Raises:
            InputError: always; it names them.
        """
        raise InputError(
            f"{self.path} is in PostgreSQL, which has its own backups: pg_dump --schema NAME, or those of the whole "
            "server (docs/postgresql.md)"
        )

    def stats(self) -> StoreStats:
        """Return how much there is of everything."""
        return self._read(lambda connection: measure(connection, self.settings))

    def _new_index(self) -> MultiIndex:
        kept = self.settings
        return MultiIndex(kept.n_bits, kept.radius, substrings=kept.index_substrings, embeddings=kept.embeddings)

    def _index_of(
        self, connection: Connection, condition: str = "TRUE", limits: _native.Limits | None = None
    ) -> MultiIndex:
        """Return an index of all rows, or of those that meet a condition."""
        index = self._new_index()
        for put in copy_out(connection, self.settings, condition):
            if limits is not None and put.embeddings is not None:
                limits.take(bytes=put.embeddings.nbytes)
            index.add(put.rows, put.codes, put.embeddings)
        return index

    def _ids_of(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Return ids by row, without those that have been deleted and had names."""
        distinct = np.unique(rows).tolist()
        named = [row for row in distinct if row >= FIRST_NAMED_ROW]
        found: dict[int, Id] = {row: row for row in distinct if row < FIRST_NAMED_ROW}
        if named:
            found.update(self._read(lambda connection: find_names(connection, named)))
        return found

    def _read(self, do: Callable[[Connection], T], limits: _native.Limits | None = None) -> T:
        self.check_open()
        return self._connections.read(do, limits)

    def _read_snapshot(self, do: Callable[[Connection], T], limits: _native.Limits | None = None) -> T:
        def in_snapshot(connection: Connection) -> T:
            with snapshot(connection):
                return do(connection)

        return self._read(in_snapshot, limits)

    def _check_writable(self) -> None:
        self.check_open()
        if self.read_only:
            raise ReadOnlyError(f"{self.address} was opened for reading only; open it without read_only=True")

    def _check_between_transactions(self, verb: str) -> None:
        if self._writing is not None:
            raise InputError(f"{verb} is called within a transaction; call it after its end")
