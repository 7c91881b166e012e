"""Which group keeps which id when groups change, merge and split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """Rows that were in an old group and are in a new one."""

    id: int
    """That of the old group."""
    group: int
    """Number of the new one."""
    n_rows: int
    has_representative: bool
    """True if the old representative is among them."""


def give_ids(claims: Iterable[Claim], firsts: Sequence[int], next_id: int) -> list[int]:
    """Return an id for each new group.

    The id of an old group goes to the new one that has its representative, or else the most of its rows, or of several
    such groups that with the first row. Where two old groups meet in a new one, the smaller id stays: it is the older.
    New groups without an id get new ones, in the order of their first rows. An item with another code than before is
    not the old one.

    Args:
        claims: of all old groups that have changed; a pair of groups may come in several parts.
        firsts: first row of each new group.
        next_id: the next id that no group ever had.
    """
    shares: dict[int, dict[int, tuple[bool, int]]] = {}
    for id, group, n_rows, has_representative in claims:
        of_id = shares.setdefault(id, {})
        before = of_id.get(group, (False, 0))
        of_id[group] = before[0] or has_representative, before[1] + n_rows
    ids = [0] * len(firsts)
    for id in sorted(shares):
        of_id = shares[id]
        heir = max(of_id, key=lambda group: (*of_id[group], -firsts[group]))
        if not ids[heir]:
            ids[heir] = id
    for group in sorted(range(len(firsts)), key=lambda group: firsts[group]):
        if not ids[group]:
            ids[group] = next_id
            next_id += 1
    return ids
