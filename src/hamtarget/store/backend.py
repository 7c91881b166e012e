"""What keeps a store's items and finds them: a folder, or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from hamtarget.codes import Codes
from hamtarget.encoders.protocol import TrainedEncoder
from hamtarget.filters import Filter
from hamtarget.items import Id, Item
from hamtarget.progress import Progress
from hamtarget.search.requests import Request
from hamtarget.search.results import BatchHits, Hits
from hamtarget.store.batches import Batch
from hamtarget.store.results import Pair, StoreReport, StoreStats
from hamtarget.store.settings import Settings


class Changes(Protocol):
    """A transaction that is under way."""

    def put(self, batch: Batch) -> None:
        """Nothing; the items are then part of the transaction, in place of those with the same ids."""
        ...

    def delete(self, ids: list[Id]) -> int:
        """How many of the ids were there; they are then gone."""
        ...


class Backend(Protocol):
    """All that `Store` needs; `Store` says what each of it means, and checks items and ids before."""

    @property
    def path(self) -> Path | str:
        """The folder, or the address without its password."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        ...

    @property
    def settings(self) -> Settings:
        """What the store was made for."""
        ...

    @property
    def sequence(self) -> int:
        """Number of the last change."""
        ...

    def close(self) -> None:
        """Nothing; nothing else works after it."""
        ...

    def compact(self) -> None:
        """Nothing; what many changes left behind is put in order."""
        ...

    def open_encoder(self) -> TrainedEncoder:
        """The encoder that was saved with the store, which has one."""
        ...

    def count(self, filter: Filter | None) -> int:
        """Number of items that pass."""
        ...

    def write(self) -> AbstractContextManager[Changes]:
        """A transaction, or the one in which this thread is already: all of it is committed at the end, or nothing."""
        ...

    def get(self, ids: list[Id]) -> list[Item | None]:
        """The items of these ids."""
        ...

    def scan(self, filter: Filter | None) -> Iterator[Item]:
        """All items that pass."""
        ...

    def find_one(self, request: Request, filter: Filter | None, *, cost: bool) -> Hits:
        """Return the hits of a request for one query."""
        ...

    def find_batch(self, request: Request, filter: Filter | None, *, threads: int, cost: bool) -> BatchHits:
        """Return the hits of a request for any number of queries."""
        ...

    def sample_codes(self, n: int, seed: int) -> Codes:
        """Return codes of `n` items drawn at random, or of all."""
        ...

    def sample_ids(self, n: int, seed: int) -> list[Id]:
        """Return ids of `n` items drawn at random, or of all."""
        ...

    def pairs(self, radius: int, *, threads: int, progress: Progress | None) -> Iterator[Pair]:
        """All pairs within the radius."""
        ...

    def groups(self, radius: int, *, threads: int, progress: Progress | None) -> list[list[Id]]:
        """Items that steps within the radius connect."""
        ...

    def verify(self, *, progress: Progress | None) -> StoreReport:
        """What is wrong, if anything."""
        ...

    def stats(self) -> StoreStats:
        """How much there is of everything."""
        ...
