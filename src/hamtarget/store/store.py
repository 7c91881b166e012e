"""Store: a durable collection of items, found by the distance of their codes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._metric import MetricName
from hamtarget.codes import Codes, check_radius
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ClosedError, HamtargetError, InputError, MissingExtraError
from hamtarget.filters import Filter
from hamtarget.items import Id, Item, Match, Payload
from hamtarget.progress import Progress
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.limits import Limits, check_limits
from hamtarget.search.requests import (
    Requests,
    check_count,
    many_codes,
    many_rows_of_logits,
    one_code,
    one_embedding,
    one_row_of_logits,
)
from hamtarget.search.results import BatchHits, Hits, bytes_in_words
from hamtarget.store.backend import Backend
from hamtarget.store.defaults import default_budget, default_radius
from hamtarget.store.groups.asking import ask_for_groups, ask_for_members, kind_of_groups
from hamtarget.store.groups.results import Groups, Linkage, Member
from hamtarget.store.items.batches import batch_of_items, batch_of_rows
from hamtarget.store.items.encoded_inputs import embeddings_of, encode, many_inputs, one_input
from hamtarget.store.items.ids import check_id, check_ids
from hamtarget.store.items.matching import check_n_codes, check_threshold
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
_ONE_OF_BOTH = "a query as the encoder takes it and {0} are both given or both missing; give one of them"


class Store:
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

    def __init__(self, engine: Backend) -> None:
        """Use `Store.create` or `Store.open`."""
        self._engine = engine
        self._encoder: Encoder | None = None
        kept = engine.settings
        self._requests = Requests(kept.n_bits, kept.radius, kept.embeddings)
        self._near: NearestVectors | None = None
        if kept.keeps_vectors and kept.embeddings is not None:
            self._near = NearestVectors(engine, self._requests, kept.embeddings, lambda: self.encoder)

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
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._engine.settings.n_bits

    @property
    def radius(self) -> int:
        """Radius of searches that do not name one."""
        return self._engine.settings.radius

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

    def count(self, filter: Filter | None = None, *, limits: Limits | None = None) -> int:
        """Return the number of items, or of those that pass a filter.

        Args:
            filter: as in `search`.
            limits: bounds on the work; every item whose payload is looked at is a row.

        Raises:
            LimitError: the work reached one of its limits.
        """
        return self._engine.count(filter, _checked(limits))

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
        source = iter(items)
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

    def get(self, ids: Iterable[Id] | NDArray[Any], *, limits: Limits | None = None) -> list[Item | None]:
        """Return the items of these ids, None for those that are not there.

        Args:
            ids: strings or integers.
            limits: bounds on the work; bytes are counted before they are read.

        Raises:
            CorruptFileError: an item is damaged.
            LimitError: the work reached one of its limits.
        """
        return self._engine.get(check_ids(ids), _checked(limits))

    def payloads(self, ids: Iterable[Id] | NDArray[Any], *, limits: Limits | None = None) -> list[Any]:
        """Return the payloads of these ids, such as those of hits; None where there is no payload or no item."""
        return [None if item is None else item.payload for item in self.get(ids, limits=limits)]

    def scan(self, filter: Filter | None = None, *, limits: Limits | None = None) -> Iterator[Item]:
        """Yield all items, or those that pass a filter, as they were when the scan began: integer ids first, ascending.

        Args:
            filter: as in `search`.
            limits: bounds on the work, until the last item is taken; bytes are counted before they are read.

        Raises:
            CorruptFileError: an item is damaged.
            LimitError: the work reached one of its limits.
        """
        return self._engine.scan(filter, _checked(limits))

    def search(
        self,
        query: Any = None,
        radius: int | None = None,
        *,
        code: ArrayLike | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Find every item within `radius` bits of a query, nearest first, or the first `limit` of them.

        Example:
            >>> import numpy as np
            >>> with Store.create("pictures", n_bits=64, radius=2) as store:
            ...     store.put_rows([1, "two"], codes=np.zeros((2, 8), dtype=np.uint8))
            ...     store.search(code=np.zeros(8, dtype=np.uint8), limit=1, cost=True).cost
            Cost(buckets=0, candidates=2, comparisons=0)

        Args:
            query: one input that the encoder takes, or else
            code: packed uint8, (n_bits / 8,). For several queries see `search_batch`.
            radius: from 0 to n_bits - 1; the store's own by default.
            limit: most hits; all of them by default.
            filter: the value, or the `Range` of values, of each named top-level field of the payload.
            rerank: so many of the hits (after `limit`), the closest by embedding.
            embedding: of the query, (n_dims,), for `rerank`; that of the encoder by default.
            cost: if True, the result's `cost` says how much work the query took.
            limits: bounds on the work.

        Returns:
            The hits; those at one distance are in the order of integer ids, then in that in which they were first
            stored. An item with several codes is found once, by its nearest code, and comes after those with one; if
            hits are re-ranked, `limit` counts codes.

        Raises:
            InputError, and its kinds: a number is out of range, or an array is not what it should be.
            LimitError: the search reached one of its limits.
        """
        if query is not None:
            code, embedding = self._encode_one(query, code, embedding, rerank, instead="search_batch")
        elif code is None:
            raise InputError(_ONE_OF_BOTH.format("code"))
        if embedding is not None:
            embedding = one_embedding(embedding)
        requests = self._requests
        request = requests.search(
            one_code(code, requests.n_bits, instead="search_batch"),
            radius,
            limit=limit,
            rerank=rerank,
            embedding=embedding,
            limits=limits,
        )
        return self._engine.find_one(request, filter, cost=cost)

    def search_batch(
        self,
        queries: Any = None,
        radius: int | None = None,
        *,
        codes: ArrayLike | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Find every item within `radius` bits of each of a batch of queries; see `search`.

        Args:
            queries: a batch of inputs that the encoder takes, or else
            codes: packed uint8, (queries, n_bits / 8).
            radius: as in `search`.
            limit: most hits for each query.
            filter: as in `search`.
            rerank: as in `search`, for each query.
            embedding: of the queries, (queries, n_dims), for `rerank`; those of the encoder by default.
            threads: the queries are shared among so many threads.
            cost: if True, the result's `costs` say how much work each query took.
            limits: bounds on the work of all queries together.

        Raises:
            As `search`.
        """
        wanted, embedding = self._encode_many(queries, codes, embedding, rerank, instead="search")
        request = self._requests.search(wanted, radius, limit=limit, rerank=rerank, embedding=embedding, limits=limits)
        return self._engine.find_batch(request, filter, threads=threads, cost=cost)

    def match(
        self,
        inputs: Any = None,
        radius: int | None = None,
        *,
        codes: ArrayLike | None = None,
        at_least: int = 1,
        limit: int | None = None,
        filter: Filter | None = None,
        threads: int = 1,
        limits: Limits | None = None,
    ) -> tuple[Match, ...]:
        """Find the items that match a query of several codes, such as the frames of a video: k of n of its codes.

        A code of the query is matched by an item if at least one code of the item lies within `radius` bits of it. k
        counts these codes of the query, and n is how many it has: an item is found if k is `at_least` or more. The
        other way about, each match also tells how many of the item's codes are matched, and of how many.

        Example:
            >>> import numpy as np
            >>> frames = np.array([[0] * 8, [255] * 8, [15] * 8], dtype=np.uint8)
            >>> with Store.create("videos", n_bits=64, radius=2) as store:
            ...     store.put([Item("a.mp4", codes=frames), Item("b.mp4", codes=frames[1:])])
            ...     [(match.id, match.n_query_matched) for match in store.match(codes=frames, at_least=3)]
            2
            [('a.mp4', 3)]

        Args:
            inputs: 1 to 64 inputs that the encoder takes, all of one query, or else
            codes: packed uint8, (codes, n_bits / 8): 1 to 64 of them.
            radius: as in `search`.
            at_least: fewest codes of the query that an item must match.
            limit: most items; all of them by default.
            filter: as in `search`.
            threads: the codes are shared among so many threads.
            limits: bounds on the work; each code that is found for a code of the query is a hit.

        Returns:
            Those with most matched codes of the query first, then those at the smallest distance of two codes, then in
            the order of `search`.

        Raises:
            As `search`; InputError also if there are too many codes, or fewer than `at_least`.
        """
        wanted, _ = self._encode_many(inputs, codes, None, None, instead="search")
        check_n_codes(wanted)
        request = self._requests.search(wanted, radius, limit=None, rerank=None, embedding=None, limits=limits)
        threshold = check_threshold(at_least, limit, len(wanted))
        return self._engine.match(request, filter, threshold, threads=threads)

    def nearest(
        self,
        query: Any = None,
        k: int = 10,
        *,
        code: ArrayLike | None = None,
        recall: float | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Find the `k` nearest items; all of them where there are fewer.

        In a store that keeps vectors, a query that is a vector finds the nearest vectors, as many of the true ones as
        `recall` says: by settings that were measured on the store's own rows (see `tune`), or by comparing all vectors
        where that is faster, where there is a filter, and for a recall of 1. Elsewhere, and for a code, items with the
        nearest codes are found, exactly. For arguments that are not explained here see `search`.

        Args:
            query: one input that the encoder takes, or else
            code: packed uint8, (n_bits / 8,).
            k: number of items.
            recall: in a store that keeps vectors, share of the true nearest to find, above 0 and up to 1; 0.95 by
                default.
            filter: as in `search`.
            rerank: of the `k` items with the nearest codes, so many, the closest by embedding.
            embedding: as in `search`.
            cost: as in `search`.
            limits: as in `search`. A store that is not tuned yet is not tuned under limits: all vectors are compared.

        Raises:
            InputError, and its kinds: as `search`; and for a vector of zeros where the metric is "cosine".
            LimitError: the search reached one of its limits.

        Example:
            >>> import numpy as np
            >>> with Store.create("near", n_bits=64) as store:
            ...     store.put_rows(["a", "b"], codes=np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            ...     store.nearest(code=np.zeros(8, dtype=np.uint8), k=2)
            Hits(2 hits: Hit(id='a', distance=0), Hit(id='b', distance=3))
        """
        near = self._vector_search(recall, query is not None and code is None, rerank)
        if near is not None:
            inputs = one_input(self.encoder, query, instead="nearest_batch")
            vectors = self._own_vectors(inputs, embedding)
            return near.find_batch(
                vectors,
                k,
                recall,
                logits=self.encoder.logits(inputs),
                filter=filter,
                threads=1,
                cost=cost,
                limits=limits,
            )[0]
        if query is not None:
            code, embedding = self._encode_one(query, code, embedding, rerank, instead="nearest_batch")
        elif code is None:
            raise InputError(_ONE_OF_BOTH.format("code"))
        request = self._requests.nearest(
            one_code(code, self._requests.n_bits, instead="nearest_batch"),
            k,
            rerank=rerank,
            embedding=one_embedding(embedding),
            limits=limits,
        )
        return self._engine.find_one(request, filter, cost=cost)

    def nearest_batch(
        self,
        queries: Any = None,
        k: int = 10,
        *,
        codes: ArrayLike | None = None,
        logits: ArrayLike | None = None,
        recall: float | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Find the `k` nearest items of each of a batch of queries; see `nearest` and `search_batch`.

        Vectors that are encoded already may come as `logits` and `embedding`, as the store keeps it.
        """
        near = self._vector_search(recall, codes is None and (queries is not None or logits is not None), rerank)
        if logits is not None and (near is None or queries is not None or embedding is None):
            raise InputError("logits are given; nearest_batch takes them with embedding, in a store that keeps vectors")
        if near is not None:
            if logits is None:
                inputs = many_inputs(self.encoder, queries, instead="nearest")
                vectors, made = self._own_vectors(inputs, embedding), self.encoder.logits(inputs)
            else:
                made = many_rows_of_logits(logits, self.n_bits)
                vectors = self._checked_vectors(embedding, len(made))
            return near.find_batch(
                vectors, k, recall, logits=made, filter=filter, threads=threads, cost=cost, limits=limits
            )
        wanted, embedding = self._encode_many(queries, codes, embedding, rerank, instead="nearest")
        request = self._requests.nearest(wanted, k, rerank=rerank, embedding=embedding, limits=limits)
        return self._engine.find_batch(request, filter, threads=threads, cost=cost)

    def probe(
        self,
        query: Any = None,
        budget: int | None = None,
        *,
        logits: ArrayLike | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        comparisons: int | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Search approximately: read at most `budget` rows, the most likely first; see `MultiIndex.probe`.

        Example:
            >>> import numpy as np
            >>> with Store.create("likely", n_bits=64, radius=2) as store:
            ...     store.put_rows(["a", "b"], codes=np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            ...     [hit.id for hit in store.probe(logits=np.full(64, -1.0), budget=100, radius=63)]
            ['a', 'b']

        Args:
            query: one input that the encoder takes, or else
            logits: of the query, (n_bits,). For several queries see `probe_batch`.
            budget: most rows read; an empty bucket counts as one row. A hundredth of the items by default, and at
                least 1,000.
            radius: hits lie within so many bits. By default the store's own radius; where its encoder was trained for
                probing, every row that is read is a hit.
            limit: as in `search`.
            filter: as in `search`; what does not pass counts as read.
            rerank: as in `search`. A store without embeddings ranks by the query's logits instead.
            embedding: as in `search`.
            comparisons: most items whose embeddings are compared; all hits by default.
            cost: as in `search`.
            limits: as in `search`.

        Raises:
            As `search`.
        """
        if (query is None) == (logits is None):
            raise InputError(_ONE_OF_BOTH.format("logits"))
        vectors = one_embedding(embedding)
        if logits is None:
            inputs = one_input(self.encoder, query, instead="probe_batch")
            made = self.encoder.logits(inputs)
            vectors = self._own_embedding(inputs, made, rerank) if vectors is None else vectors
        else:
            made = one_row_of_logits(logits, self.n_bits)
        request = self._requests.probe(
            made,
            default_budget(len(self)) if budget is None else budget,
            radius=default_radius(self) if radius is None else radius,
            limit=limit,
            rerank=rerank,
            embedding=vectors,
            comparisons=comparisons,
            limits=limits,
        )
        return self._engine.find_one(request, filter, cost=cost)

    def probe_batch(
        self,
        queries: Any = None,
        budget: int | None = None,
        *,
        logits: ArrayLike | None = None,
        radius: int | None = None,
        limit: int | None = None,
        filter: Filter | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        comparisons: int | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Search approximately for a batch of queries, with a budget for each; see `probe` and `search_batch`."""
        if (queries is None) == (logits is None):
            raise InputError(_ONE_OF_BOTH.format("logits"))
        if logits is None:
            inputs = many_inputs(self.encoder, queries, instead="probe")
            made = self.encoder.logits(inputs)
            embedding = self._own_embedding(inputs, made, rerank) if embedding is None else embedding
        else:
            made = many_rows_of_logits(logits, self.n_bits)
        request = self._requests.probe(
            made,
            default_budget(len(self)) if budget is None else budget,
            radius=default_radius(self) if radius is None else radius,
            limit=limit,
            rerank=rerank,
            embedding=embedding,
            comparisons=comparisons,
            limits=limits,
        )
        return self._engine.find_batch(request, filter, threads=threads, cost=cost)

    def tune(self, k: int = USUAL_K, *, threads: int | None = None, progress: Progress | None = None) -> Tuning:
        """Group the vectors of the store into cells, measure which settings of `nearest` give which recall, keep both.

        This is `NeighborIndex.fit` with the vectors of a folder; what it makes lies beside the index and follows every
        change. In PostgreSQL, settings of probes are measured instead. A store of 10,000 items or more is tuned by the
        first `nearest` without limits, and again when it has become twice as large; call this to have it done at
        another time. Searches and changes go on meanwhile. It changes no item.

        Args:
            k: number of neighbours; what is measured serves fewer as well.
            threads: by default one for each core.
            progress: called with steps done and all steps.

        Raises:
            InputError: the store keeps no vectors, or has not more than k + 1 items.
        """
        return self._vectors().tune(k, threads=threads, progress=progress)

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
        return self._engine.sample_codes(check_count(n, name="n"), seed)

    def sample_ids(self, n: int, *, seed: int = 0) -> list[Id]:
        """Return the ids of `n` items drawn at random without repeats, or of all where there are fewer."""
        return self._engine.sample_ids(check_count(n, name="n"), seed)

    def near_duplicates(
        self,
        radius: int | None = None,
        *,
        threads: int = 1,
        progress: Progress | None = None,
        limits: Limits | None = None,
    ) -> Iterator[Pair]:
        """Yield all pairs of items within `radius` bits of each other, each once, in the order of `a`.

        Items that are changed during the iteration are seen as they were or as they are. `progress` is called with
        items done and all items. With `limits`, rows and hits are those of the searches for each item: an item finds
        itself, and both items of a pair find each other.
        """
        within = self.radius if radius is None else check_radius(radius, self.n_bits)
        return self._engine.pairs(within, threads=threads, progress=progress, limits=_checked(limits))

    def groups(
        self,
        radius: int | None = None,
        *,
        linkage: Linkage = "single",
        limit: int | None = 50,
        after: int | None = None,
        members: int | None = 100,
        threads: int = 1,
        progress: Progress | None = None,
        limits: Limits | None = None,
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
            threads: that search when all groups are made for the first time.
            progress: called with different codes done and all of them, when all groups are made.
            limits: bounds on the work; if it reaches one, the groups that are kept stay as they were. Rows and hits are
                those of searches for new codes, and members that are read.

        Raises:
            InputError: an argument is out of range, or there is no group `after` any more.
            LimitError: the work reached one of its limits.
            WriteError: the disk is full.
        """
        return ask_for_groups(
            self._engine,
            kind_of_groups(self._engine, radius, linkage),
            limit=limit,
            after=after,
            members=members,
            threads=threads,
            progress=progress,
            limits=_checked(limits),
        )

    def group_members(
        self,
        group: int,
        radius: int | None = None,
        *,
        linkage: Linkage = "single",
        start: int = 0,
        limit: int = 100,
        limits: Limits | None = None,
    ) -> tuple[Member, ...]:
        """Return members of a group, the representative first, then those nearest to it: `limit` of them from `start`.

        Args:
            group: its id, as `groups` with this radius and linkage gave it.
            radius: as in `groups`.
            linkage: as in `groups`.
            start: number of members to skip.
            limit: most members to return.
            limits: as in `groups`.

        Raises:
            InputError: there is no such group any more, or an argument is out of range.
            LimitError: the work reached one of its limits.
        """
        kind = kind_of_groups(self._engine, radius, linkage)
        return ask_for_members(self._engine, kind, group, start=start, limit=limit, limits=_checked(limits))

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

    def _encode_one(
        self, query: Any, code: ArrayLike | None, embedding: ArrayLike | None, rerank: int | None, *, instead: str
    ) -> tuple[ArrayLike, ArrayLike | None]:
        """Return the code of a query and, if hits are to be re-ranked, its embedding."""
        if code is not None:
            raise InputError(_ONE_OF_BOTH.format("code"))
        kind = None if rerank is None or embedding is not None else self.embeddings
        inputs = one_input(self.encoder, query, instead=instead)
        codes, made = encode(self.encoder, inputs, kind, keeps_vectors=self._near is not None)
        return codes[0], embedding if made is None else made[0]

    def _encode_many(
        self, queries: Any, codes: ArrayLike | None, embedding: ArrayLike | None, rerank: int | None, *, instead: str
    ) -> tuple[Codes, ArrayLike | None]:
        """Return the codes of a batch of queries and, if hits are to be re-ranked, their embeddings."""
        if (queries is None) == (codes is None):
            raise InputError(_ONE_OF_BOTH.format("codes"))
        if codes is not None:
            return many_codes(codes, self.n_bits, instead=instead), embedding
        kind = None if rerank is None or embedding is not None else self.embeddings
        inputs = many_inputs(self.encoder, queries, instead=instead)
        made_codes, made = encode(self.encoder, inputs, kind, keeps_vectors=self._near is not None)
        return made_codes, embedding if made is None else made

    def _vectors(self) -> NearestVectors:
        if self._near is None:
            raise InputError(f"{self.path} keeps no vectors; create it with an encoder of near vectors, or vectors=...")
        return self._near

    def _vector_search(self, recall: float | None, has_vector: bool, rerank: int | None) -> NearestVectors | None:
        """Return the search by vectors, if that is what is asked for.

        Raises:
            InputError: a recall is asked for where it means nothing.
        """
        if recall is not None:
            check_recall(recall)
            self._vectors()
            if not has_vector or rerank is not None:
                raise InputError("recall is given with a code or with rerank; it is for queries that are vectors")
        return self._near if has_vector and rerank is None else None

    def _own_vectors(self, inputs: NDArray[Any], embedding: ArrayLike | None) -> NDArray[Any]:
        """Return vectors, which the encoder takes, as they are compared with those that are kept."""
        if embedding is not None:
            raise InputError("embedding is given with a query that is a vector; the vector is what is compared")
        if self.embeddings is None:
            raise TypeError("a store of vectors does not know their kind")
        return query_rows(inputs, self.embeddings)

    def _checked_vectors(self, embedding: ArrayLike | None, n_rows: int) -> NDArray[Any]:
        if self.embeddings is None or embedding is None:
            raise TypeError("a store of vectors does not know their kind")
        return self.embeddings.check_queries(embedding, n_rows=n_rows)

    def _own_embedding(
        self, inputs: NDArray[Any], logits: NDArray[np.float32], rerank: int | None
    ) -> NDArray[Any] | None:
        """Return the embeddings of queries, if hits are to be re-ranked by them: vectors, or logits."""
        if rerank is None or self.embeddings is None:
            return None
        return embeddings_of(logits, self.embeddings) if self._near is None else query_rows(inputs, self.embeddings)


def _checked(limits: Limits | None) -> Limits | None:
    if limits is not None:
        check_limits(limits)
    return limits


def _verify_folder(folder: Path, progress: Progress | None) -> StoreReport:
    with Store.open(folder, read_only=True) as store:
        return store.verify(progress=progress)
