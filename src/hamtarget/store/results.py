"""What a store gives back."""

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
    """What a store holds.

    Attributes:
        items: number of items.
        sequence: number of the last change.
        n_bits: bits of a code.
        radius: what a search without a radius of its own looks within.
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
    """What `verify` found.

    Attributes:
        items: rows that were compared.
        problems: one line for each thing that is wrong, the first hundred; empty where everything is as it should be.
        n_problems: how many there are.
    """

    items: int
    problems: tuple[str, ...]
    n_problems: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.n_problems == 0
