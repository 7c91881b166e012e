"""Results of a store that are not hits: pairs, sizes, findings."""

from __future__ import annotations

from dataclasses import dataclass
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
        sequence: number of the last change.
        n_bits: bits of a code.
        radius: that of searches that do not name one.
        snapshot_sequence: the last change that the saved index knows of; None where there is no saved index.
        index_bytes: memory that the index takes.
        disk_bytes: bytes of all files of the store.
    """

    items: int
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
        items: rows that were compared.
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
