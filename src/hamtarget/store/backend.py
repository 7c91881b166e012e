"""The agreement between a store and the engine that keeps its items and finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from hamtarget.codes import Codes
from hamtarget.encoders.protocol import Encoder
from hamtarget.filters import Filter
from hamtarget.items import Id, Item, Match
from hamtarget.progress import Progress
from hamtarget.query import Work
from hamtarget.search.limits import Limits
from hamtarget.search.multi import MultiIndex
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.search.requests import Request
from hamtarget.search.results import BatchHits, Hits
from hamtarget.store.groups.kept import Answer
from hamtarget.store.groups.tables import Kind
from hamtarget.store.items.batches import Batch
from hamtarget.store.items.matching import Threshold
from hamtarget.store.reports import BackupReport, Pair, StoreReport, StoreStats
from hamtarget.store.settings import Settings

T = TypeVar("T")

FindInCells = Callable[[NeighborIndex, MultiIndex], BatchHits | None]
"""Finds hits in cells and the index they belong to; None if a hit was deleted meanwhile."""


class Changes(Protocol):
    """A transaction that is under way."""

    def put(self, batch: Batch) -> None:
        """Put items, in place of those with the same ids."""
        ...

    def delete(self, ids: list[Id]) -> int:
        """Delete these ids, and return how many of them were there."""
        ...


class Backend(Protocol):
    """An engine: all that `Store` needs. `Store` says what each call means, and checks items and ids before."""

    @property
    def path(self) -> Path | str:
        """The folder, or the address without its password."""
        ...

    @property
    def read_only(self) -> bool:
        """True if it was opened for reading only."""
        ...

    @property
    def settings(self) -> Settings:
        """Settings that the store was created with."""
        ...

    @property
    def sequence(self) -> int:
        """Number of the last change."""
        ...

    @property
    def is_settled(self) -> bool:
        """True if a search in memory would wait for nothing: neither for the disk nor for a change."""
        ...

    @property
    def substrings(self) -> int:
        """Number of substrings by which codes are looked up now."""
        ...

    @property
    def memory(self) -> int:
        """Bytes of this process that the index takes."""
        ...

    def close(self) -> None:
        """Close it; nothing else works after that."""
        ...

    def compact(self) -> None:
        """Put in order what many changes left behind."""
        ...

    def open_encoder(self) -> Encoder:
        """Open the encoder that was saved with the store."""
        ...

    def count(self, filter: Filter | None, limits: Limits | None = None) -> int:
        """Return the number of items that pass."""
        ...

    def write(self) -> AbstractContextManager[Changes]:
        """Begin a transaction, or join that of this thread; at the end all of it is committed, or nothing."""
        ...

    def get(self, ids: list[Id], limits: Limits | None = None) -> list[Item | None]:
        """Return the items of these ids."""
        ...

    def scan(self, filter: Filter | None, limits: Limits | None = None) -> Iterator[Item]:
        """Yield all items that pass."""
        ...

    def find_one(self, request: Request, filter: Filter | None, *, cost: bool) -> Hits:
        """Return the hits of a request for one query."""
        ...

    def find_batch(self, request: Request, filter: Filter | None, *, threads: int, cost: bool) -> BatchHits:
        """Return the hits of a request for any number of queries."""
        ...

    def match(
        self, request: Request, filter: Filter | None, threshold: Threshold, *, threads: int
    ) -> tuple[Match, ...]:
        """Return the items that the codes of a request, which are of one query, match."""
        ...

    @property
    def has_several(self) -> bool:
        """True if an item has several codes."""
        ...

    def sample_codes(self, n: int, seed: int) -> Codes:
        """Return `n` codes drawn at random, or all."""
        ...

    def sample_ids(self, n: int, seed: int) -> list[Id]:
        """Return ids of `n` items drawn at random, or of all."""
        ...

    def whole_index(self) -> MultiIndex:
        """Return an index of all rows, in memory; it is read only."""
        ...

    @property
    def has_cells(self) -> bool:
        """True if the engine can keep vectors in cells; otherwise they are probed by their codes."""
        ...

    def cells(self) -> NeighborIndex | None:
        """Return the cells of the vectors, if there are any."""
        ...

    def make_cells(self, asked: NeighborIndex, work: Work) -> None:
        """Fit cells to all vectors by an index that is not fitted yet; keep them if they are faster than a scan."""
        ...

    def find_in_cells(self, find: FindInCells) -> BatchHits | None:
        """Return what `find` finds in the cells and the index; None where there are no cells."""
        ...

    @property
    def scanned_rows(self) -> int:
        """Most rows that a probe reads before it comes to the likely ones, and that count in its budget."""
        ...

    def read_tunings(self) -> dict[int, str]:
        """Return what `write_tuning` wrote, by `k`; nothing if the store keeps no vectors."""
        ...

    def write_tuning(self, k: int, text: str) -> None:
        """Keep what was measured for `k` neighbours, in place of what was there; it is no change of the items."""
        ...

    def pairs(
        self, radius: int, *, threads: int, progress: Progress | None, limits: Limits | None = None
    ) -> Iterator[Pair]:
        """Yield all pairs within the radius."""
        ...

    def ask_groups(
        self, kind: Kind, answer: Answer[T], *, threads: int, progress: Progress | None, limits: Limits | None
    ) -> T:
        """Bring groups of a kind to the last change, and return what `answer` reads of them."""
        ...

    def verify(self, *, progress: Progress | None) -> StoreReport:
        """Check everything, and report what is wrong."""
        ...

    def stats(self) -> StoreStats:
        """Return how much there is of everything."""
        ...

    def backup(
        self, target: Path, verify: Callable[[Path, Progress | None], StoreReport], *, progress: Progress | None
    ) -> BackupReport:
        """Copy the store as it is at this moment, and check the copy with `verify`."""
        ...
