"""Groups by single linkage follow changes: what came joins or connects groups, what left may split one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hamtarget.query import Work
from hamtarget.store.groups.heirs import Claim, give_ids
from hamtarget.store.groups.partition import partition
from hamtarget.store.groups.source import Changes, Near, Source, codes_of
from hamtarget.store.groups.tables import GroupPlace, GroupRow, GroupTables, Kept, Kind, Place


@dataclass(slots=True, eq=False)
class _Part:
    """Places that are surely connected: a whole group, a part of one that was split, or a place that is new."""

    first: int
    """Its first row."""
    size: int
    """Rows that it has now."""
    old: int = 0
    """The group it was; 0 if it is new."""
    old_size: int = 0
    """Rows that it had before and still has."""
    has_representative: bool = False
    places: list[int] | None = None
    """Numbers of its places; None for all places of the group it was."""
    above: _Part | None = field(default=None, repr=False)

    def top(self) -> _Part:
        """Return the part that stands for all that are connected with this one."""
        top = self
        while top.above is not None:
            top = top.above
        # The next way up is short.
        part = self
        while part.above is not None:
            part.above, part = top, part.above
        return top

    def add(self, n_rows: int, first: int) -> None:
        """Add rows."""
        self.size += n_rows
        self.first = min(self.first, first)


class SingleLinkage:
    """One update of the groups; to be used once."""

    def __init__(self, tables: GroupTables, source: Source, radius: int, kept: Kept) -> None:
        self._tables = tables
        self._source = source
        self._radius = radius
        self._kept = kept
        self._parts: list[_Part] = []
        self._of_group: dict[int, _Part] = {}
        self._of_place: dict[int, _Part] = {}
        self._old: dict[int, GroupRow] = {}
        self._new_places: dict[bytes, tuple[int, list[int]]] = {}
        self._touched: set[int] = set()

    def follow(self, changes: Changes, work: Work) -> Kept:
        """Bring the groups to the changes, and return their new state, but for the number of the change."""
        self._leave(changes, work)
        self._come(changes, work)
        return self._finish()

    def _leave(self, changes: Changes, work: Work) -> None:
        """Remove rows, and split the groups that have lost a place."""
        tables = self._tables
        left = changes.rows_that_left
        tables.remove_members(left)
        firsts = tables.firsts([place.number for place in changes.left])
        emptied = [place for place in changes.left if place.number not in firsts]
        tables.remove_places([place.number for place in emptied])
        self._know({place.group for place in changes.left})
        gone = set(left)
        n_left: dict[int, int] = {}
        for place, rows in changes.left.items():
            n_left[place.group] = n_left.get(place.group, 0) + len(rows)
        self._touched |= n_left.keys()
        to_split = {place.group for place in emptied}
        remaining = tables.places_of_groups(sorted(to_split))
        for id, count in sorted(n_left.items()):
            group = self._old[id]
            if id in remaining:
                self._split(group, remaining[id], work, has_representative=group.representative not in gone)
            if id in to_split:
                continue
            first = group.representative
            has_representative = first not in gone
            if not has_representative:
                first = min(place.first for place in tables.places_of_group(id))
            size = group.size - count
            self._add_part(_Part(first, size, id, size, has_representative))

    def _split(
        self, group: GroupRow, left: list[tuple[GroupPlace, int]], work: Work, *, has_representative: bool
    ) -> None:
        """Find the connected parts of what is left of a group: places, each with the number of its rows."""
        left.sort(key=lambda each: each[0].first)
        places = [place for place, _ in left]
        kind = Kind(self._radius, "single")
        roots = partition(codes_of([place.code for place in places]), kind, work)
        numbers: dict[int, list[int]] = {root: [] for root in roots.tolist()}
        parts = {root: _Part(places[root].first, 0, group.id, places=numbers[root]) for root in numbers}
        for (place, n_rows), root in zip(left, roots.tolist(), strict=True):
            part = parts[root]
            part.add(n_rows, place.first)
            part.old_size = part.size
            numbers[root].append(place.number)
            part.has_representative |= has_representative and place.first == group.representative
            self._of_place[place.number] = part
        self._parts += parts.values()

    def _come(self, changes: Changes, work: Work) -> None:
        known = self._tables.places_of_codes(changes.shared)
        self._know({place.group for place in known.values()})
        joined = []
        for code, place in known.items():
            rows = changes.came[code]
            self._part_of(place).add(len(rows), min(rows))
            joined += [(row, place.number) for row in rows]
        self._tables.add_members(joined)
        fresh = [code for code in changes.came if code not in known]
        if not fresh:
            return
        done = 0
        limits = work.limits
        for block in self._source.near(codes_of(fresh), self._radius, work):
            if limits is not None:
                limits.check()
            # Those of the codes that came are known by now.
            others = {code for near in block if len(near) > 1 for code in near} - changes.came.keys()
            known |= self._tables.places_of_codes(sorted(others - known.keys()))
            self._know({place.group for place in known.values()})
            for code, near in zip(fresh[done : done + len(block)], block, strict=True):
                if len(near) > 1 or len(near[code]) > 1:
                    self._connect(near, known)
            done += len(block)

    def _connect(self, near: Near, known: dict[bytes, Place]) -> None:
        parts = [
            (self._part_of(known[code]) if code in known else self._new_part(code, rows)).top()
            for code, rows in near.items()
        ]
        for part in parts[1:]:
            if (low := part.top()) is not (top := parts[0].top()):
                low.above = top

    def _new_part(self, code: bytes, rows: list[int]) -> _Part:
        if code not in self._new_places:
            number = self._kept.next_place + len(self._new_places)
            self._new_places[code] = number, rows
            self._of_place[number] = _Part(rows[0], len(rows), places=[number])
            self._parts.append(self._of_place[number])
        return self._of_place[self._new_places[code][0]]

    def _know(self, ids: set[int]) -> None:
        self._old.update(self._tables.groups(sorted(ids - self._old.keys())))

    def _part_of(self, place: Place) -> _Part:
        part = self._of_place.get(place.number) or self._of_group.get(place.group)
        if part is None:
            group = self._old[place.group]
            part = self._add_part(_Part(group.representative, group.size, group.id, group.size, True))
        return part

    def _add_part(self, part: _Part) -> _Part:
        self._touched.add(part.old)
        self._of_group[part.old] = part
        self._parts.append(part)
        return part

    def _finish(self) -> Kept:
        """Write the groups that have changed."""
        connected: dict[_Part, list[_Part]] = {}
        for part in self._parts:
            connected.setdefault(part.top(), []).append(part)
        groups: list[list[_Part]] = []
        lone: list[list[_Part]] = []
        for parts in connected.values():
            (groups if sum(part.size for part in parts) > 1 else lone).append(parts)
        firsts = [min(part.first for part in parts) for parts in groups]
        claims = [
            Claim(part.old, number, part.old_size, part.has_representative)
            for number, parts in enumerate(groups)
            for part in parts
            if part.old
        ]
        ids = give_ids(claims, firsts, self._kept.next_id)
        self._tables.remove_places([number for parts in lone for part in parts for number in self._numbers(part)])
        self._move(ids, groups)
        rows = [
            GroupRow(id, first, sum(part.size for part in parts))
            for id, first, parts in zip(ids, firsts, groups, strict=True)
        ]
        touched = [self._old[id] for id in sorted(self._touched)]
        return self._tables.replace_groups(self._kept, touched, rows, n_new_places=len(self._new_places))

    def _numbers(self, part: _Part) -> list[int]:
        if part.places is None:
            return [place.number for place in self._tables.places_of_group(part.old)]
        return part.places

    def _move(self, ids: list[int], groups: list[list[_Part]]) -> None:
        """Give all parts of a group its id, and write new places."""
        new = {number: (code, rows) for code, (number, rows) in self._new_places.items()}
        moved_groups: list[tuple[int, int]] = []
        moved_places: list[tuple[int, int]] = []
        added: list[Place] = []
        for id, parts in zip(ids, groups, strict=True):
            for part in parts:
                if not part.old:
                    added += (Place(number, new[number][0], id) for number in part.places or ())
                elif part.old != id and part.places is None:
                    moved_groups.append((id, part.old))
                elif part.old != id:
                    moved_places += ((id, number) for number in part.places or ())
        self._tables.move_groups(moved_groups)
        self._tables.move_places(moved_places)
        self._tables.add_places(added)
        self._tables.add_members((row, place.number) for place in added for row in new[place.number][1])
