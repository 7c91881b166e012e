"""Results of a store that are not hits: pairs, sizes, findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hamtarget.items import Id


class Pair(NamedTuple):
    """Two items that lie near each other; `a` was stored before `b`, or has the smaller integer id."""

    a: Id
    b: Id
    distance: int
    """Hamming distance between them."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Sizes of a store.

    Attributes:
        items: number of items.
        codes: number of their codes; more than items if some of these have several.
        sequence: number of the last change.
        n_bits: bits of a code.
        radius: that of searches that do not name one.
        snapshot_sequence: the last change that the saved index knows of; None where there is no saved index.
        index_bytes: memory that the index takes.
        disk_bytes: bytes of all files of the store.
    """

    items: int
    codes: int
    sequence: int
    n_bits: int
    radius: int
    snapshot_sequence: int | None
    index_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class StoreReport:
    """Findings of `Store.verify`.

    Attributes:
        items: number of items; every row of each was compared.
        problems: one line for each thing that is wrong, the first hundred; empty where everything is as it should be.
        n_problems: how many there are.
        n_lost_changes: how many changes were acknowledged and are missing; they are one of the problems.
        unchecked: one line for each thing that could not be checked here, and why.
    """

    items: int
    problems: tuple[str, ...]
    n_problems: int
    n_lost_changes: int = 0
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return self.n_problems == 0


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Result of `Store.backup` and `Store.restore`: a copy that was checked and is in place.

    Attributes:
        path: the folder.
        items: number of items in it.
        sequence: number of the last change in it.
        n_bytes: bytes of all its files.
        is_index_reused: True if the saved index was taken from the backup before, because it was the same.
    """

    path: Path
    items: int
    sequence: int
    n_bytes: int
    is_index_reused: bool


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Result of `Store.repair`: how much came back, and what did not.

    Attributes:
        path: the folder of the new store.
        items: number of items that came back.
        n_lost_changes: changes at the end that neither the database nor its log holds.
        n_bad_rows: rows of the tables that are damaged, or that SQLite cannot read.
        n_missing: items that the saved index knows and that did not come back.
        missing: the first hundred of their ids, as far as these are known.
        problems: one line for each kind of thing that did not come back.
    """

    path: Path
    items: int
    n_lost_changes: int = 0
    n_bad_rows: int = 0
    n_missing: int | None = None
    missing: tuple[Id, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if everything came back."""
        return not self.problems
