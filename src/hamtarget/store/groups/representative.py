"""Groups around representatives follow changes, and are always those that all rows in turn would make.

Rows with one code are a place, and the first of them is the place's turn. A place joins the first representative within
the radius, or becomes one. So a place depends on earlier ones only. What changes is looked at again in the order of
turns, and each place that begins or ceases to be a representative leads to the later places near it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hamtarget.query import Work
from hamtarget.store.groups.heirs import Claim, give_ids
from hamtarget.store.groups.source import Changes, Near, Source, codes_of
from hamtarget.store.groups.tables import GroupRow, GroupTables, Kept, Place


@dataclass(slots=True, eq=False)
class _Node:
    """A place that was met: in the tables, or of rows that are in no group."""

    code: bytes
    turn: int
    """Its first row."""
    leader: int
    """Turn of its representative; its own if it is one."""
    was_leader: bool = False
    """True if it was the representative of its group before."""
    place: Place | None = None
    """None if it is not in the tables."""
    rows: list[int] | None = None
    """All of its rows, where it is not in the tables."""

    @property
    def is_leader(self) -> bool:
        """True if it is a representative."""
        return self.leader == self.turn


class RepresentativeLinkage:
    """One update of the groups; to be used once."""

    def __init__(self, tables: GroupTables, source: Source, radius: int, kept: Kept) -> None:
        self._tables = tables
        self._source = source
        self._radius = radius
        self._kept = kept
        # Groups before the changes, and the places of their representatives.
        self._old: dict[int, GroupRow] = {}
        self._centres: dict[int, int] = {}
        # Rows of each group now; at the end, without those of places that were looked at.
        self._others: dict[int, int] = {}
        self._gone: set[int] = set()
        # Group and number of new rows of places that stay.
        self._joined: dict[int, tuple[int, int]] = {}
        # Codes that came and are in no table.
        self._fresh: set[bytes] = set()
        self._nodes: dict[bytes, _Node] = {}
        self._waiting: list[tuple[int, bytes]] = []
        self._looked: dict[bytes, _Node] = {}
        # Searches that were made ahead, in the order in which they are needed.
        self._near: dict[bytes, Near] = {}
        self._ahead: set[bytes] = set()
        self._blocks: Iterator[None] = iter(())

    def follow(self, changes: Changes, work: Work) -> Kept:
        """Bring the groups to the changes, and return their new state, but for the number of the change."""
        self._waiting = sorted(self._write_rows(changes, work))
        if self._waiting:
            codes = [code for _, code in self._waiting]
            self._ahead.update(codes)
            self._blocks = self._read_ahead(codes, work)
        while self._waiting:
            _, code = heapq.heappop(self._waiting)
            if code not in self._looked:
                self._look(code, work)
        return self._finish()

    def _write_rows(self, changes: Changes, work: Work) -> set[tuple[int, bytes]]:
        """Remove and add rows at places that stay, and return turn and code of the places to look at."""
        tables = self._tables
        known = tables.places_of_codes(changes.shared)
        self._know({place.group for place in (*known.values(), *changes.left)})
        left = changes.rows_that_left
        self._gone = set(left)
        tables.remove_members(left)
        for place, rows in changes.left.items():
            self._others[place.group] -= len(rows)
        firsts = tables.firsts([place.number for place in (*known.values(), *changes.left)])
        emptied = [place.number for place in changes.left if place.number not in firsts]
        tables.remove_places(emptied)
        joined: list[tuple[int, int]] = []
        fresh: list[bytes] = []
        upset = {place.group for place in changes.left if self._old[place.group].representative in self._gone}
        earlier: list[int] = []
        for code, rows in changes.came.items():
            if code not in known or known[code].number not in firsts:
                fresh.append(code)
                continue
            place = known[code]
            joined += ((row, place.number) for row in rows)
            self._joined[place.number] = place.group, len(rows)
            self._others[place.group] += len(rows)
            if min(rows) < firsts[place.number]:
                if place.number == self._centres[place.group]:
                    upset.add(place.group)
                else:
                    earlier.append(place.number)
        tables.add_members(joined)
        dirty = {(place.first, place.code) for id in upset for place in tables.places_of_group(id)}
        codes = {place.number: place.code for place in known.values()}
        dirty |= {(first, codes[number]) for number, first in tables.firsts(earlier).items()}
        self._fresh.update(fresh)
        shared = set(changes.shared)
        dirty |= {(changes.came[code][0], code) for code in fresh if code not in shared}
        return dirty | self._turns([code for code in fresh if code in shared], work)

    def _turns(self, codes: list[bytes], work: Work) -> set[tuple[int, bytes]]:
        """Return turn and code of places that are not in the tables: an older row, so far alone, may have the code."""
        if not codes:
            return set()
        return {
            (rows[0], code)
            for block in self._source.near(codes_of(codes), 0, work)
            for near in block
            for code, rows in near.items()
        }

    def _know(self, ids: set[int]) -> None:
        """Read groups, and the places of their representatives."""
        found = self._tables.groups(sorted(ids - self._old.keys()))
        self._old.update(found)
        self._others.update((id, group.size) for id, group in found.items())
        # Those that are gone were met before they were removed.
        places = self._tables.places_of_rows([group.representative for group in found.values()])
        self._centres.update((id, places[group.representative]) for id, group in found.items())

    def _read_ahead(self, codes: list[bytes], work: Work) -> Iterator[None]:
        """Search for codes in blocks: for each alone, it would take much longer."""
        done = 0
        for block in self._source.near(codes_of(codes), self._radius, work):
            self._near.update(zip(codes[done : done + len(block)], block, strict=True))
            self._meet(block)
            done += len(block)
            yield

    def _near_to(self, code: bytes, work: Work) -> Near:
        while code in self._ahead and code not in self._near:
            next(self._blocks)
        if code not in self._near:
            found = [near for block in self._source.near(codes_of([code]), self._radius, work) for near in block]
            self._meet(found)
            return found[0]
        return self._near.pop(code)

    def _meet(self, found: Iterable[Near]) -> None:
        """Make nodes of all codes that were found."""
        unmet = {code: rows for near in found for code, rows in near.items() if code not in self._nodes}
        places = self._tables.places_of_codes(sorted(unmet.keys() - self._fresh))
        self._know({place.group for place in places.values()})
        for code, rows in unmet.items():
            turn = rows[0]
            place = places.get(code)
            if place is None:
                self._nodes[code] = _Node(code, turn, turn, rows=rows)
                continue
            leader = self._old[place.group].representative
            was_leader = leader == turn and place.number == self._centres[place.group]
            self._nodes[code] = _Node(code, turn, leader, was_leader, place)

    def _look(self, code: bytes, work: Work) -> None:
        """Find the representative of a place anew, and let later places wait that this may concern."""
        if (limits := work.limits) is not None:
            limits.check()
        near = [self._nodes[other] for other in self._near_to(code, work)]
        node = self._looked[code] = self._nodes[code]
        leader = min((other for other in near if other.turn < node.turn and other.is_leader), default=node, key=_turn)
        node.leader = leader.turn
        if leader.place is None:
            # Alone until now, it is written with the group.
            self._looked[leader.code] = leader
        if node.is_leader == node.was_leader:
            return
        for other in near:
            follows = other.place is not None and node.place is not None and other.place.group == node.place.group
            if other.turn > node.turn and (other.leader > node.turn if node.is_leader else follows):
                heapq.heappush(self._waiting, (other.turn, other.code))

    def _finish(self) -> Kept:
        """Write the groups that have changed."""
        looked = list(self._looked.values())
        counts = self._tables.counts([node.place.number for node in looked if node.place is not None])
        sizes: dict[int, int] = {}
        shares: list[tuple[int, Claim]] = []
        for node in looked:
            n_rows = len(node.rows) if node.rows is not None else 0
            if node.place is not None:
                id, number = node.place.group, node.place.number
                n_rows = counts[number]
                self._others[id] -= n_rows
                n_old = n_rows - self._joined.pop(number, (0, 0))[1]
                shares.append((node.leader, Claim(id, 0, n_old, self._has_representative(node.place))))
            sizes[node.leader] = sizes.get(node.leader, 0) + n_rows
        touched = self._touched(sizes)
        for group in touched:
            # What was not looked at has the representative that it had.
            if n_rows := self._others[group.id]:
                n_new = sum(count for id, count in self._joined.values() if id == group.id)
                sizes[group.representative] = sizes.get(group.representative, 0) + n_rows
                shares.append((group.representative, Claim(group.id, 0, n_rows - n_new, True)))
        firsts = sorted(turn for turn, size in sizes.items() if size > 1)
        numbers = {turn: number for number, turn in enumerate(firsts)}
        claims = [claim._replace(group=numbers[leader]) for leader, claim in shares if leader in numbers]
        ids = dict(zip(firsts, give_ids(claims, firsts, self._kept.next_id), strict=True))
        n_added = self._move(ids, touched)
        rows = [GroupRow(id, turn, sizes[turn]) for turn, id in ids.items()]
        return self._tables.replace_groups(self._kept, touched, rows, n_new_places=n_added)

    def _has_representative(self, place: Place) -> bool:
        """Return True if the representative that a group had is still there, and at this place."""
        id = place.group
        return place.number == self._centres[id] and self._old[id].representative not in self._gone

    def _touched(self, sizes: dict[int, int]) -> list[GroupRow]:
        """Return the old groups that have changed, or that something has joined; `sizes`: what joins which turn."""
        joined = {id for id, _ in self._joined.values()}
        return [
            group
            for id, group in sorted(self._old.items())
            if self._others[id] != group.size or group.representative in sizes or id in joined
        ]

    def _move(self, ids: dict[int, int], touched: list[GroupRow]) -> int:
        """Write the groups of places, and new places; return how many of these there are."""
        tables = self._tables
        lone: list[int] = []
        moved_groups: list[tuple[int, int]] = []
        for group in touched:
            if self._others[group.id] and group.representative not in ids:
                lone.append(self._centres[group.id])
            elif self._others[group.id] and ids[group.representative] != group.id:
                moved_groups.append((ids[group.representative], group.id))
        moved_places: list[tuple[int, int]] = []
        added: list[Place] = []
        rows: list[tuple[int, int]] = []
        for node in self._looked.values():
            id = ids.get(node.leader)
            if node.place is not None and id is None:
                lone.append(node.place.number)
            elif node.place is not None and id is not None:
                moved_places.append((id, node.place.number))
            elif node.rows is not None and id is not None:
                number = self._kept.next_place + len(added)
                added.append(Place(number, node.code, id))
                rows += ((row, number) for row in node.rows)
        tables.move_groups(moved_groups)
        # After the groups: a place that was looked at may have left one of them.
        tables.move_places(moved_places)
        tables.remove_places(lone)
        tables.add_places(added)
        tables.add_members(rows)
        return len(added)


def _turn(node: _Node) -> int:
    return node.turn
