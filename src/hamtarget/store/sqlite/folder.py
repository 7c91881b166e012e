"""A store in a folder: items by SQLite, searches by the index in memory that follows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hamtarget.encoders import open_encoder
from hamtarget.encoders.protocol import TrainedEncoder
from hamtarget.progress import Progress
from hamtarget.search import pairs_within
from hamtarget.store.duplicates import close_groups
from hamtarget.store.filters import Filter
from hamtarget.store.items import Item
from hamtarget.store.results import Id, Pair, StoreHits, StoreQueryHits, StoreReport, StoreStats
from hamtarget.store.sqlite.creation import ENCODER_NAME
from hamtarget.store.sqlite.engine import Asked, Engine
from hamtarget.store.sqlite.inspection import store_stats, verify_store
from hamtarget.store.sqlite.live import StoreIndex
from hamtarget.store.sqlite.reading import count_items, get_items, scan_items
from hamtarget.store.sqlite.searching import Rows, rows_for_nearest, rows_for_search


class FolderEngine(Engine):
    """A `Backend` in a folder."""

    def open_encoder(self) -> TrainedEncoder:
        """The encoder that was saved with the store."""
        return open_encoder(self.path / ENCODER_NAME)

    def count(self, filter: Filter | None) -> int:
        """Number of items that pass."""
        if not filter:
            return len(self.index)
        return self.read(lambda connection, _: count_items(connection, filter))

    def get(self, ids: list[Id]) -> list[Item | None]:
        """The items of these ids."""
        return self.read(lambda connection, _: get_items(connection, ids, self.settings.embeddings))

    def scan(self, filter: Filter | None) -> Iterator[Item]:
        """All items that pass."""
        with self.reading() as connection:
            yield from scan_items(connection, filter, self.settings.embeddings)

    def find(
        self,
        codes: ArrayLike,
        radius: int | None,
        *,
        limit: int | None,
        filter: Filter | None,
        rerank: int | None,
        queries: ArrayLike | None,
        threads: int,
    ) -> StoreQueryHits | StoreHits:
        """Every item within the radius of a code, or of each of several."""
        asked = (codes, radius, limit, rerank, queries, threads)
        if not filter:
            return self.search(_search, asked)
        return self.search_in_step(partial(_search_passing, filter, asked))

    def find_nearest(
        self,
        codes: ArrayLike,
        k: int,
        *,
        filter: Filter | None,
        rerank: int | None,
        queries: ArrayLike | None,
        threads: int,
    ) -> StoreQueryHits | StoreHits:
        """The nearest items to a code, or to each of several."""
        asked = (codes, k, rerank, queries, threads)
        if not filter:
            return self.search(_nearest, asked)
        return self.search_in_step(partial(_nearest_passing, filter, asked))

    def pairs(self, radius: int, *, threads: int, progress: Progress | None) -> Iterator[Pair]:
        """All pairs within the radius."""
        for a, b, distances in pairs_within(self.index, radius, threads=threads, progress=progress):
            ids = self.ids_of(np.concatenate((a, b)))
            for row_a, row_b, distance in zip(a.tolist(), b.tolist(), distances.tolist(), strict=True):
                if row_a in ids and row_b in ids:
                    yield Pair(ids[row_a], ids[row_b], distance)

    def groups(self, radius: int, *, threads: int, progress: Progress | None) -> list[list[Id]]:
        """Items that steps within the radius connect."""
        groups = close_groups(self.index, radius, threads=threads, progress=progress)
        return [ids for group in groups if len(ids := list(self.ids_of(group).values())) > 1]

    def verify(self, *, progress: Progress | None) -> StoreReport:
        """What is wrong, if anything: SQLite's own check, every row's checksum, every row against the index."""
        return self.read(
            lambda connection, index: verify_store(connection, index, self.path, self.settings, progress=progress)
        )

    def stats(self) -> StoreStats:
        """How much there is of everything."""
        return self.read(lambda connection, index: store_stats(connection, index, self.path, self.settings))


def _search(index: StoreIndex, asked: Asked, rows: Rows | None = None) -> Any:
    codes, radius, limit, rerank, queries, threads = asked
    return index.search(codes, radius, limit=limit, filter=rows, rerank=rerank, queries=queries, threads=threads)


def _search_passing(filter: Filter, asked: Asked, connection: sqlite3.Connection, index: StoreIndex) -> Any:
    codes, radius, *_ = asked
    return _search(index, asked, rows_for_search(connection, index, filter, codes, radius))


def _nearest(index: StoreIndex, asked: Asked, rows: Rows | None = None) -> Any:
    codes, k, rerank, queries, threads = asked
    return index.nearest(codes, k, filter=rows, rerank=rerank, queries=queries, threads=threads)


def _nearest_passing(filter: Filter, asked: Asked, connection: sqlite3.Connection, index: StoreIndex) -> Any:
    codes, k, *_ = asked
    return _nearest(index, asked, rows_for_nearest(connection, index, filter, codes, k))
