"""Store: a durable collection of items, found by the distance of their codes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import check_integer, shown
from hamtarget._metric import MetricName
from hamtarget.answer import Answer, Hits, bytes_in_words
from hamtarget.codes import Codes, check_radius
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ClosedError, DtypeError, HamtargetError, InputError, MissingExtraError
from hamtarget.filters import Filter, FilterLike
from hamtarget.items import Id, Item, Payload
from hamtarget.progress import Progress
from hamtarget.query import Asked, Query, Work, check_question, check_work
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.requests import CodeKind
from hamtarget.searchable import Searchable
from hamtarget.store.backend import Backend
from hamtarget.store.defaults import default_radius
from hamtarget.store.groups.asking import ask_for_groups, ask_for_members, kind_of_groups
from hamtarget.store.groups.results import Groups, Linkage, Member
from hamtarget.store.items.batches import batch_of_items, batch_of_rows
from hamtarget.store.items.encoded_inputs import embeddings_of, encode, many_inputs, one_input
from hamtarget.store.items.ids import check_id, check_ids
from hamtarget.store.postgres.address import is_address
from hamtarget.store.reports import BackupReport, Pair, RepairReport, StoreReport, StoreStats
from hamtarget.store.settings import Durability, choose_settings
from hamtarget.store.sqlite.engine import FolderEngine
from hamtarget.store.sqlite.folders import create_folder
from hamtarget.store.vectors.kept_vectors import VectorChoice, query_rows
from hamtarget.store.vectors.nearest_vectors import USUAL_K, NearestVectors
from hamtarget.store.vectors.tuning import Tuning, check_recall

# Items of one `put` that are encoded and written at a time; all of them are one transaction.
_ITEMS_AT_ONCE = 512


class Store(Searchable):
    """A durable collection of items (id, code, embedding, payload), found by the distance of their codes.

    Use `Store.create` or `Store.open`, and `close` at the end or a `with` block. A store is a folder, or lives in a
    database: `postgresql://user@host/database?store=name` (docs/postgresql.md). One process writes to a folder at a
    time; any number of others read, and see each change once it is committed. Within a process, any number of threads
    may read while one writes. In a database, any number of processes may write, one after another.

    Example:
        >>> import numpy as np
        >>> codes = np.array([[0] * 8, [1] + [0] * 7, [255] * 8], dtype=np.uint8)
        >>> store = Store.create("catalogue", n_bits=64, radius=2)
        >>> store.put_rows(["a.jpg", "b.jpg", "c.jpg"], codes=codes, payloads=[{"year": 2023}, {"year": 2024}, None])
        >>> store.search(code=codes[0])
        Hits(2 hits: Hit(id='a.jpg', distance=0), Hit(id='b.jpg', distance=1))
        >>> store.search(code=codes[0], filter={"year": 2024})
        Hits(1 hit: Hit(id='b.jpg', distance=1))
        >>> store
        Store('catalogue', items=3, n_bits=64, radius=2, substrings=3, memory=...)
        >>> store.close()
    """

    radius: int
    """Radius of searches that do not name one."""

    def __init__(self, engine: Backend) -> None:
        """Use `Store.create` or `Store.open`."""
        self._engine = engine
        self._encoder: Encoder | None = None
        kept = engine.settings
        self.n_bits, self.radius = kept.n_bits, kept.radius
        self._codes = CodeKind(kept.n_bits, kept.embeddings)
        self._near: NearestVectors | None = None
        if kept.keeps_vectors and kept.embeddings is not None:
            self._near = NearestVectors(engine, self._codes, kept.embeddings, lambda: self.encoder)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        encoder: Encoder | None = None,
        n_bits: int | None = None,
        radius: int | None = None,
        substrings: int | None = None,
        embeddings: Embeddings | None = None,
        vectors: VectorChoice | None = "auto",
        durability: Durability = "full",
    ) -> Self:
        """Create an empty store, and open it for writing.

        Args:
            path: a folder that is not there yet, or is empty; or an address whose schema is so.
            encoder: turns inputs into codes; it is saved with the store. Without it, `put` takes codes.
            n_bits: bits of a code; the encoder's by default.
            radius: that of searches that do not name one; the encoder's by default, or 2.
            substrings: number of tables of the index; as many as the encoder was trained for, or else what suits the
                rows (`MultiIndex.explain`); in PostgreSQL, radius + 1.
            embeddings: kind of the embeddings that are kept with the codes, of the caller's own choice.
            vectors: "l2", "cosine" or "dot": the vectors that the encoder takes are kept, and `nearest` finds the
                nearest of them. "auto": so it is if the encoder was trained to find near vectors, and `embeddings` is
                not given. None: they are not kept.
            durability: "full": a put has reached the disk when it returns (SQLite's synchronous=FULL). "os": it has
                reached the operating system (NORMAL): a crash of the process loses nothing, a loss of power perhaps
                the last puts, never the order of them or the store. For PostgreSQL see docs/postgresql.md.

        Raises:
            FileError: the folder is not empty.
            InputError: a setting is missing or out of range.
            ServerError, PrivilegeError: the database cannot be reached, or refuses.
            MissingExtraError: no psycopg.
        """
        settings = choose_settings(
            encoder,
            n_bits=n_bits,
            radius=radius,
            substrings=substrings,
            embeddings=embeddings,
            vectors=vectors,
            durability=durability,
        )
        _check_path(path)
        if is_address(path):
            from hamtarget.store.postgres.engine import create_in_database

            create_in_database(str(path), settings, encoder)
        else:
            create_folder(Path(path), settings, encoder)
        store = cls.open(path)
        store._encoder = encoder
        return store

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        progress: Progress | None = None,
        accept_loss: bool = False,
    ) -> Self:
        """Open the store in a folder, or at an address.

        Args:
            path: where `create` made it.
            read_only: if True, it is opened for reading only: any number of processes may, while one writes.
            progress: called with rows done and all rows, if the index must be built from the rows.
            accept_loss: if True, a folder whose last changes are missing is opened for writing without them. What is
                left of its log is kept in a file `lost-changes-*.wal`. Opening for reading only warns.

        Raises:
            FileError: there is no store.
            LockedError: another process is writing it.
            CorruptFileError: the database is damaged.
            LostChangesError: the last changes are missing, as after damage of the log; nothing was touched.
            UnsupportedFileError: a later version wrote it.
            ReadOnlyError: the folder cannot be written.
            ServerError, PrivilegeError, MissingExtraError: as `create`.
        """
        _check_path(path)
        if is_address(path):
            from hamtarget.store.postgres.engine import PostgresEngine

            return cls(PostgresEngine(str(path), read_only=read_only))
        return cls(FolderEngine(Path(path), read_only=read_only, progress=progress, accept_loss=accept_loss))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, so that another process may write. The index is saved if it has changed.

        Closing twice is fine.
        """
        self._engine.close()

    def __repr__(self) -> str:
        """Return path, items, bits, radius, substrings and memory in a line."""
        try:
            state = f"items={len(self):,}"
            end = f", memory={bytes_in_words(self.memory)}" if self.memory else ""
        except ClosedError:
            state, end = "closed", ""
        except HamtargetError as error:
            state, end = f"not readable now ({type(error).__name__})", ""
        kept = self._engine.settings
        what = f"n_bits={kept.n_bits}, radius={kept.radius}, substrings={self._engine.substrings}"
        return f"Store({str(self.path)!r}, {state}, {what}{end})"

    @property
    def memory(self) -> int:
        """Bytes of this process that the index takes; 0 for a store in PostgreSQL, which has none in memory."""
        return self._engine.memory

    @property
    def path(self) -> Path | str:
        """The store's folder, or its address without the password."""
        return self._engine.path

    @property
    def read_only(self) -> bool:
        """True if it was opened for reading only."""
        return self._engine.read_only

    @property
    def substrings(self) -> int:
        """Number of substrings by which codes are looked up now."""
        return self._engine.substrings

    @property
    def embeddings(self) -> Embeddings | None:
        """Kind of the embeddings that are kept with the codes, if any."""
        return self._engine.settings.embeddings

    @property
    def vectors(self) -> MetricName | None:
        """Metric by which the vectors that are kept are near; None if none are kept."""
        kept = self._engine.settings
        return kept.embeddings.metric if kept.keeps_vectors and kept.embeddings is not None else None

    @property
    def has_encoder(self) -> bool:
        """True if the store holds an encoder, and takes inputs."""
        return self._engine.settings.has_encoder

    @property
    def encoder(self) -> Encoder:
        """The encoder that was saved with the store; opened when first used.

        Raises:
            InputError: the store has none.
        """
        if self._encoder is None:
            if not self._engine.settings.has_encoder:
                raise InputError(f"{self.path} has no encoder; pass codes, or create it with encoder=...")
            self._encoder = self._engine.open_encoder()
        return self._encoder

    @property
    def sequence(self) -> int:
        """Number of the last change: it grows by 1 with each transaction."""
        return self._engine.sequence

    @property
    def is_settled(self) -> bool:
        """True if a search by code would wait for nothing: neither for a disk or a server, nor for a change."""
        return self._engine.is_settled

    def __len__(self) -> int:
        """Return the number of items."""
        return self._engine.count(None)

    def __contains__(self, id: object) -> bool:
        """Return True if there is an item of this id."""
        try:
            wanted = check_id(id)
        except InputError:
            return False
        return self.get([wanted])[0] is not None

    def count(self, filter: FilterLike | None = None, *, work: Work | None = None) -> int:
        """Return the number of items, or of those that pass a filter.

        Args:
            filter: as in `search`.
            work: bounds; every item whose payload is looked at is a row.

        Raises:
            LimitError: the work reached one of its bounds.
        """
        return self._engine.count(Filter.of(filter), check_work(work).limits)

    def put(self, items: Iterable[Item]) -> int:
        """Put items, in place of those with the same ids: all of them are then on disk, or none.

        All of them are one transaction: give an endless stream in batches. Of an id that is given twice, the last
        item counts.

        Returns:
            How many items were given.

        Raises:
            InputError, and its kinds: an item is not what the store keeps.
            WriteError: the disk is full or fails.
            ReadOnlyError: the store was opened for reading.
        """
        n_items = 0
        try:
            source = iter(items)
        except TypeError as error:
            raise DtypeError(
                f"items are {shown(items)}; expected a list of Item, or what can be gone through"
            ) from error
        with self._engine.write() as writing:
            while block := list(islice(source, _ITEMS_AT_ONCE)):
                writing.put(batch_of_items(self._engine.settings, lambda: self.encoder, block))
                n_items += len(block)
        return n_items

    def put_rows(
        self,
        ids: Iterable[Id] | NDArray[Any],
        *,
        codes: ArrayLike | None = None,
        inputs: Any = None,
        embeddings: ArrayLike | None = None,
        payloads: Sequence[Payload | None] | None = None,
    ) -> None:
        """Put items that are given as arrays; this is faster than `put`.

        Args:
            ids: (rows,) of strings or integers.
            codes: (rows, n_bits / 8) of packed uint8, or (rows, codes, n_bits / 8) where each item has several; or else
            inputs: a batch of inputs of the store's encoder.
            embeddings: (rows, n_dims), or one for each of several codes, (rows, codes, n_dims), where the store keeps
                embeddings; those of the encoder by default.
            payloads: a JSON object or None for each row.

        Raises:
            As `put`.
        """
        batch = batch_of_rows(
            self._engine.settings,
            lambda: self.encoder,
            ids,
            codes=codes,
            inputs=inputs,
            embeddings=embeddings,
            payloads=payloads,
        )
        with self._engine.write() as writing:
            writing.put(batch)

    def delete(self, ids: Iterable[Id] | NDArray[Any]) -> int:
        """Delete the items of these ids, and return how many of the ids were there.

        Raises:
            As `put`.
        """
        checked = check_ids(ids)
        with self._engine.write() as writing:
            return writing.delete(checked)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a block whose puts and deletes are all committed at its end, or none if anything is raised in it.

        Searches and `get` see the changes once they are committed, also in the thread that makes them. Other threads
        that write wait. A transaction within a transaction is part of it.
        """
        with self._engine.write():
            yield

    def get(self, ids: Iterable[Id] | NDArray[Any], *, work: Work | None = None) -> list[Item | None]:
        """Return the items of these ids, None for those that are not there.

        Args:
            ids: strings or integers.
            work: bounds; bytes are counted before they are read.

        Raises:
            CorruptFileError: an item is damaged.
            LimitError: the work reached one of its bounds.
        """
        return self._engine.get(check_ids(ids), check_work(work).limits)

    def payloads(self, ids: Iterable[Id] | NDArray[Any], *, work: Work | None = None) -> list[Any]:
        """Return the payloads of these ids, such as those of hits; None where there is no payload or no item."""
        return [None if item is None else item.payload for item in self.get(ids, work=work)]

    def scan(self, filter: FilterLike | None = None, *, work: Work | None = None) -> Iterator[Item]:
        """Yield all items, or those that pass a filter, as they were when the scan began: integer ids first, ascending.

        Args:
            filter: as in `search`.
            work: bounds, until the last item is taken; bytes are counted before they are read.

        Raises:
            CorruptFileError: an item is damaged.
            LimitError: the work reached one of its bounds.
        """
        return self._engine.scan(Filter.of(filter), check_work(work).limits)

    def answer(self, asked: Asked, query: Query, work: Work | None = None) -> Answer:
        """Answer a batch of queries; see `Searchable.answer`. A filter is one of payloads."""
        check_question(asked, query)
        # Started here: what is tried one after another shares the bounds.
        work = check_work(work).started()
        near = self._vector_search(asked, query)
        if near is not None:
            return near.find(asked, query, Filter.of(query.filter), work)
        return self._engine.find(self._codes.request(asked, query, work), Filter.of(query.filter))

    def answer_one(self, asked: Asked, query: Query, work: Work) -> Hits:
        """Answer one query, given as a batch of one: where it is asked by code, without the arrays of a batch."""
        if (self._near is not None or query.recall is not None) and self._vector_search(asked, query) is not None:
            return self.answer(asked, query, work)[0]
        return self._engine.find_one(self._codes.request(asked, query, work), Filter.of(query.filter))

    def answer_code(
        self,
        query: Any,
        code: ArrayLike | None,
        radius: int | None,
        limit: int | None,
        is_nearest: bool,
        mask: NDArray[Any] | None,
    ) -> Hits | None:
        """Answer a query for one code without a step more than needed, if it is an array of the right kind."""
        if query is not None or mask is not None or type(code) is not ndarray:
            return None
        return self._engine.answer_code(code, radius, limit, is_nearest)

    def _asked(self, query: Any, code: ArrayLike | None, wanted: Query, *, many: bool) -> Asked:
        """Return codes as they are; encode inputs, and make of them only what the query needs."""
        given = self._given(query, code, "codes" if many else "a code")
        if code is not None:
            return Asked(given)
        if many:
            inputs = many_inputs(self.encoder, given, instead="search")
        else:
            inputs = one_input(self.encoder, given, instead="search_batch")
        asked = self._encoded(inputs, wanted)
        return asked if many else asked.row(0)

    def _encoded(self, inputs: NDArray[Any], wanted: Query) -> Asked:
        kind = self.embeddings
        by_vectors = self._near is not None and _is_for_vectors(wanted)
        if by_vectors or wanted.budget is not None:
            logits = self.encoder.logits(inputs)
            if kind is None or (wanted.rerank is None and not by_vectors):
                return Asked(logits=logits)
            vectors = embeddings_of(logits, kind) if self._near is None else query_rows(inputs, kind)
            return Asked(logits=logits, embeddings=vectors)
        ranked_by = None if wanted.rerank is None else kind
        codes, made = encode(self.encoder, inputs, ranked_by, keeps_vectors=self._near is not None)
        return Asked(codes, embeddings=made)

    def _own_radius(self, budget: int | None) -> int:
        """Return the store's radius; with a budget, every bit where the codes were made for that."""
        return self.radius if budget is None else default_radius(self)

    def tune(self, k: int = USUAL_K, *, work: Work | None = None) -> Tuning:
        """Group the vectors of the store into cells, measure which settings of `nearest` give which recall, keep both.

        This is `NeighborIndex.fit` with the vectors of a folder; what it makes lies beside the index and follows every
        change. In PostgreSQL, settings of probes are measured instead. A store of 10,000 items or more is tuned by the
        first `nearest` without limits, and again when it has become twice as large; call this to have it done at
        another time. Searches and changes go on meanwhile. It changes no item.

        Args:
            k: number of neighbours; what is measured serves fewer as well.
            work: threads, by default one for each core, and progress in steps.

        Raises:
            InputError: the store keeps no vectors, or has not more than k + 1 items.
        """
        return self._vectors().tune(k, check_work(work))

    @property
    def needs_tuning(self) -> bool:
        """True if the store keeps vectors, has 10,000 items or more, and `tune` would make searches faster."""
        return self._near is not None and self._near.needs_tuning()

    @property
    def tunings(self) -> dict[int, Tuning]:
        """Measurements of `tune`, by the number of neighbours; empty where nothing was measured."""
        return {} if self._near is None else self._near.tunings()

    def sample_codes(self, n: int, *, seed: int = 0) -> Codes:
        """Return `n` codes of items, drawn at random without repeats, or all where there are fewer.

        Args:
            n: number of codes, at least 1.
            seed: the same seed draws the same codes as long as the store does not change.

        Returns:
            (codes, n_bits / 8) of packed uint8, in no order.
        """
        return self._engine.sample_codes(check_integer(n, name="n"), seed)

    def sample_ids(self, n: int, *, seed: int = 0) -> list[Id]:
        """Return the ids of `n` items drawn at random without repeats, or of all where there are fewer."""
        return self._engine.sample_ids(check_integer(n, name="n"), seed)

    def near_duplicates(self, radius: int | None = None, *, work: Work | None = None) -> Iterator[Pair]:
        """Yield all pairs of items within `radius` bits of each other, each once, in the order of `a`.

        Items that are changed during the iteration are seen as they were or as they are. Progress counts items. Rows
        and hits of the bounds are those of the searches for each item: an item finds itself, and both items of a pair
        find each other.
        """
        within = self.radius if radius is None else check_radius(radius, self.n_bits)
        return self._engine.pairs(within, check_work(work))

    def groups(
        self,
        radius: int | None = None,
        *,
        linkage: Linkage = "single",
        limit: int | None = 50,
        after: int | None = None,
        members: int | None = 100,
        work: Work | None = None,
    ) -> Groups:
        """Return groups of near duplicates, largest first; they are kept, and later calls only follow the changes.

        A group keeps its id while items come and go. Where two groups merge, the smaller id stays, which is the older.
        Where one splits, the part with its representative keeps the id, or else the part with the most items. A store
        that was opened for reading keeps nothing: ids of groups that are new in it last until it is closed.

        Example:
            >>> codes = np.array([[0] * 8, [1] + [0] * 7, [255] * 8], dtype=np.uint8)
            >>> store = Store.create("photos", n_bits=64, radius=2)
            >>> store.put_rows(["a.jpg", "b.jpg", "c.jpg"], codes=codes)
            >>> store.groups().groups
            (Group(id=1, size=2, representative='a.jpg', members=(Member(id='a.jpg', distance=0), ...)),)

        Args:
            radius: the store's own by default.
            linkage: "single": items that a chain of steps within the radius connects. "representative": every item is
                within the radius of the group's representative; items in the order of `scan` join the first
                representative within the radius, or become one.
            limit: most groups of the page; None for all.
            after: `next` of the page before.
            members: most members of each group; None for all. `Group.is_capped` tells that there are more.
            work: threads and progress in different codes, when all groups are made for the first time; and bounds:
                where one is reached, the groups that are kept stay as they were. Rows and hits are those of searches
                for new codes, and members that are read.

        Raises:
            InputError: an argument is out of range, or there is no group `after` any more.
            LimitError: the work reached one of its bounds.
            WriteError: the disk is full.
        """
        return ask_for_groups(
            self._engine,
            kind_of_groups(self._engine, radius, linkage),
            limit=limit,
            after=after,
            members=members,
            work=check_work(work).started(),
        )

    def group_members(
        self,
        group: int,
        radius: int | None = None,
        *,
        linkage: Linkage = "single",
        start: int = 0,
        limit: int = 100,
        work: Work | None = None,
    ) -> tuple[Member, ...]:
        """Return members of a group, the representative first, then those nearest to it: `limit` of them from `start`.

        Args:
            group: its id, as `groups` with this radius and linkage gave it.
            radius: as in `groups`.
            linkage: as in `groups`.
            start: number of members to skip.
            limit: most members to return.
            work: as in `groups`.

        Raises:
            InputError: there is no such group any more, or an argument is out of range.
            LimitError: the work reached one of its bounds.
        """
        kind = kind_of_groups(self._engine, radius, linkage)
        return ask_for_members(self._engine, kind, group, start=start, limit=limit, work=check_work(work).started())

    def compact(self) -> None:
        """Save the index as one piece, and give the space of deleted items back to the disk.

        Changes keep the store in good order by themselves; this is for the end of many changes.
        """
        self._engine.compact()

    def verify(self, *, progress: Progress | None = None) -> StoreReport:
        """Check everything, and report what is wrong.

        That is the database, the checksum of every row, every row against the index, the encoder, and whether the last
        changes are there.
        """
        report = self._engine.verify(progress=progress)
        if not self.has_encoder:
            return report
        try:
            # Opened anew: what is in memory says nothing about the files.
            self._engine.open_encoder()
        except (MissingExtraError, InputError) as error:
            # A package is missing here, or the network is the caller's own: that is no damage.
            return replace(report, unchecked=(*report.unchecked, f"the encoder: {error}"))
        except HamtargetError as error:
            problems = (*report.problems, f"the encoder cannot be opened: {error}")
            return replace(report, problems=problems, n_problems=report.n_problems + 1)
        return report

    def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> BackupReport:
        """Copy the store, as it is now, to a folder; the copy is a store of its own.

        Whoever writes, in this process or another, goes on meanwhile. All of the copy is of one moment, and every row
        of it is checked before it is put in place as a whole. A backup that is already there stays until then. If the
        call is interrupted, the next one begins anew; what was left is removed.

        Args:
            path: a folder that is not there, is empty, or holds an earlier backup of this store.
            progress: called with bytes done and all bytes; each counts when it is written and when it is checked.

        Raises:
            FileError: there is something else than a backup, or a backup of a later change.
            LostChangesError: the last changes of this store are missing; an earlier backup may hold them.
            CorruptFileError: this store is damaged; nothing was put in place.
            WriteError: the disk is full.
            InputError: the store is in PostgreSQL.
        """
        return self._engine.backup(Path(path), _verify_folder, progress=progress)

    @staticmethod
    def restore(
        backup: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy a backup to the folder of a store; every row is checked before it is put in place as a whole.

        Args:
            backup: the folder that `backup` wrote.
            path: a folder that is not there, or is empty; or that of a store, if
            replace: is True. That store stays until the new one is in place.
            progress: as of `backup`.

        Raises:
            FileError: there is no backup, or something at `path`.
            LockedError: somebody writes to the store at `path`.
            CorruptFileError: the backup is damaged; nothing was put in place.
            WriteError: the disk is full.
        """
        engine = FolderEngine(Path(backup), read_only=True)
        try:
            return engine.restore(Path(path), _verify_folder, replace=replace, progress=progress)
        finally:
            engine.close()

    @staticmethod
    def repair(
        path: str | os.PathLike[str], target: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> RepairReport:
        """Make a new store of everything that can still be read in a damaged one, which is not touched.

        Every row that comes back has its checksum. Changes behind the damage of a log are lost. The report says what
        did not come back. The new store needs room for a copy of the database while it is made.

        Args:
            path: the folder of the damaged store; nobody may write to it meanwhile.
            target: a folder that is not there, or is empty.
            progress: called with rows read and all rows.

        Raises:
            FileError: there is no store, or something at `target`.
            CorruptFileError: SQLite cannot read the database at all, or not even the settings can be read.
            WriteError: the disk is full.
        """
        from hamtarget.store.sqlite.repair import repair_folder

        return repair_folder(Path(path), Path(target), _verify_folder, progress=progress)

    def stats(self) -> StoreStats:
        """Return how much there is of everything."""
        return self._engine.stats()

    def _vectors(self) -> NearestVectors:
        if self._near is None:
            raise InputError(f"{self.path} keeps no vectors; create it with an encoder of near vectors, or vectors=...")
        return self._near

    def _vector_search(self, asked: Asked, query: Query) -> NearestVectors | None:
        """Return the search by vectors, if that is what is asked for.

        Raises:
            InputError: a recall is asked for where it means nothing.
        """
        has_vectors = asked.codes is None and asked.logits is not None and asked.embeddings is not None
        if query.recall is not None:
            check_recall(query.recall)
            self._vectors()
            if not has_vectors or not _is_for_vectors(query):
                raise InputError("recall is given with a code, rerank or a budget; it is for queries that are vectors")
        return self._near if has_vectors and _is_for_vectors(query) else None


def _check_path(path: object) -> None:
    if not isinstance(path, str | os.PathLike):
        raise DtypeError(f"path is {shown(path)}; expected the path of a folder, or an address")


def _is_for_vectors(query: Query) -> bool:
    """Return True if the nearest are wanted, by nothing but their vectors."""
    return query.radius is None and query.rerank is None and query.budget is None


def _verify_folder(folder: Path, progress: Progress | None) -> StoreReport:
    with Store.open(folder, read_only=True) as store:
        return store.verify(progress=progress)
