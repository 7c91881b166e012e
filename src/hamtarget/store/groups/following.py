"""Groups that are kept follow the store: by what has changed, or all of them anew."""

from __future__ import annotations

import numpy as np

from hamtarget.codes import Codes
from hamtarget.query import Work
from hamtarget.search.distinct import distinct_codes
from hamtarget.store.groups.heirs import Claim, give_ids
from hamtarget.store.groups.partition import partition
from hamtarget.store.groups.representative import RepresentativeLinkage
from hamtarget.store.groups.single import SingleLinkage
from hamtarget.store.groups.source import Rows, Source, keys_of, read_changes
from hamtarget.store.groups.tables import GroupRow, GroupTables, Kept, Kind, Place

# Following so many rows, or this share of all, takes longer than making all groups anew.
_ALWAYS_FOLLOWED = 1000
_FOLLOWED_SHARE = 0.25


def can_follow(kept: Kept, source: Source) -> bool:
    """Return True if few enough rows have changed that groups follow; False if they are better made anew."""
    if not kept.sequence or kept.sequence > source.sequence:
        return False
    most = max(_ALWAYS_FOLLOWED, int(_FOLLOWED_SHARE * len(source)))
    return source.n_changed(kept.sequence, most + 1) <= most


def follow(tables: GroupTables, source: Source, kind: Kind, kept: Kept, work: Work) -> None:
    """Bring kept groups to the change that the source is at."""
    changes = read_changes(tables, source, kept.sequence, work)
    update = (SingleLinkage if kind.linkage == "single" else RepresentativeLinkage)(tables, source, kind.radius, kept)
    tables.write_state(update.follow(changes, work)._replace(sequence=source.sequence))


def make_anew(
    tables: GroupTables,
    rows: Rows,
    codes: Codes,
    sequence: int,
    kind: Kind,
    kept: Kept,
    work: Work,
) -> None:
    """Make all groups anew; those that were kept before hand their ids on.

    Args:
        tables: of the groups.
        rows: all rows of a store, ascending.
        codes: of the rows.
        sequence: the change at which these are all rows.
        kind: of the groups.
        kept: the state of the tables.
        work: threads that search, progress in codes, and bounds.
    """
    work = work.started()
    limits = work.limits
    groups = _partitioned(rows, codes, kind, work)
    claims = _claims(tables, rows, codes, groups)
    firsts = [int(rows[group[0]]) for group in groups]
    ids = give_ids(claims, firsts, kept.next_id)
    tables.clear()
    places: list[Place] = []
    members: list[tuple[int, int]] = []
    next_place = kept.next_place
    for id, group in zip(ids, groups, strict=True):
        if limits is not None:
            limits.check()
        numbers: dict[bytes, int] = {}
        for row, key in zip(rows[group].tolist(), keys_of(codes[group]), strict=True):
            if key not in numbers:
                numbers[key] = next_place
                places.append(Place(next_place, key, id))
                next_place += 1
            members.append((row, numbers[key]))
    tables.add_places(places)
    tables.add_members(members)
    new = [GroupRow(id, first, len(group)) for id, first, group in zip(ids, firsts, groups, strict=True)]
    empty = kept._replace(n_groups=0, n_items=0, sequence=sequence)
    tables.write_state(tables.replace_groups(empty, [], new, n_new_places=next_place - kept.next_place))


def _partitioned(rows: Rows, codes: Codes, kind: Kind, work: Work) -> list[Rows]:
    """Return groups of two or more rows, as places in `rows`, ascending, by their first ones.

    Rows with the same code are one place, so that a million copies of one thing are not a million squared pairs.
    """
    if not len(rows):
        return []
    limits = work.limits
    if limits is not None:
        limits.check()
    some, number = distinct_codes(codes)
    first = np.full(len(some), len(rows))
    np.minimum.at(first, number, np.arange(len(rows)))
    if limits is not None:
        limits.check()
    order = np.argsort(first)
    leaders = np.empty(len(some), dtype=np.int64)
    found = partition(codes[first[order]], kind, work)
    leaders[order] = first[order][found]
    of_row = leaders[number]
    by_group = np.argsort(of_row, kind="stable")
    groups = np.split(by_group, np.flatnonzero(np.diff(of_row[by_group])) + 1)
    return [group for group in groups if len(group) > 1]


def _claims(tables: GroupTables, rows: Rows, codes: Codes, groups: list[Rows]) -> list[Claim]:
    """Return which rows of old groups, with the same codes as before, are in which new ones."""
    before = tables.all_members()
    if not before:
        return []
    of_row = np.full(len(rows), -1)
    for number, group in enumerate(groups):
        of_row[group] = number
    representatives = {group.representative for group in tables.all_groups()}
    places = np.searchsorted(rows, [row for row, _, _ in before])
    claims = []
    for (row, code, id), place in zip(before, places.tolist(), strict=True):
        is_same = place < len(rows) and rows[place] == row and codes[place].tobytes() == bytes(code)
        if is_same and of_row[place] >= 0:
            claims.append(Claim(id, int(of_row[place]), 1, row in representatives))
    return claims
