"""Rows out of the pages of a database that may be damaged: whatever can be decoded, from whatever can be reached.

The formats are those of https://sqlite.org/fileformat2.html. Nothing that is decoded is believed: whoever asks compares
each row with its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hamtarget.store.sqlite.repairing.raw_pages import INDEX_LEAF, TABLE_INNER, TABLE_LEAF, Pages, cells, varint

_FIRST_PAGE_HEADER = 100
_MOST_DEPTH = 20
_LEAST_ROW, _MOST_ROW = -(2**63), 2**63 - 1
# A payload, the largest embedding, and some room.
_MOST_BYTES = 2**25
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)


class Text(bytes):
    """Text as it lies in the file, which may not be UTF-8."""


class RawRow(NamedTuple):
    """A row of a table; `values` is None where it cannot be decoded."""

    row: int | None
    values: Sequence[Any] | None


class Tables:
    """The tables of a database.

    Attributes:
        roots: first page of each table, by name.
        visited: pages that were reached.
        bad_pages: pages that should be there and are missing, or are something else than they should be.
        is_branch_lost: True if a page that leads to others is among these.
    """

    def __init__(self, pages: Pages, usual_roots: dict[str, int]) -> None:
        self._pages = pages
        self.visited: set[int] = set()
        self.bad_pages: set[int] = set()
        self.is_branch_lost = False
        self.roots = {**usual_roots, **self._read_roots()}

    def _read_roots(self) -> dict[str, int]:
        roots = {}
        for raw in self.rows(1):
            if raw.values is not None and len(raw.values) == 5:
                kind, name, _, root, _ = raw.values
                if kind == b"table" and isinstance(name, bytes) and isinstance(root, int):
                    roots[name.decode("ascii", "replace")] = root
        return roots

    def rows(self, root: int) -> Iterator[RawRow]:
        """Yield all rows of a table that can be reached from its first page."""
        yield from self._walk(root, _LEAST_ROW, _MOST_ROW, _MOST_DEPTH)

    def _walk(self, number: int, low: int, high: int, depth: int) -> Iterator[RawRow]:
        page = self._pages.read(number)
        if number in self._pages.damaged:
            self.bad_pages.add(number)
        if page is None or number in self.visited or depth == 0:
            self.bad_pages.add(number)
            # A page that is missing may have led to others.
            self.is_branch_lost = self.is_branch_lost or page is None
            return
        self.visited.add(number)
        start = _FIRST_PAGE_HEADER if number == 1 else 0
        if page[start] != TABLE_INNER:
            if page[start] != TABLE_LEAF:
                self.bad_pages.add(number)
                self.is_branch_lost = True
            for raw in self._leaf_rows(page, start):
                if raw.row is None or low <= raw.row <= high:
                    yield raw
            return
        children = self._children(page, start, high)
        keys = [key for key, _ in children]
        if keys != sorted(set(keys)) or not low <= keys[0] <= keys[-1] <= high:
            self.bad_pages.add(number)
            self.is_branch_lost = True
            for _, child in children:
                yield from self._walk(child, low, high, depth - 1)
            return
        for key, child in children:
            yield from self._walk(child, low, key, depth - 1)
            low = key + 1

    def _children(self, page: bytes, start: int, high: int) -> list[tuple[int, int]]:
        """Return the pages that a page leads to, each with the largest row that may be there."""
        children = []
        for offset in cells(page, start, 12):
            try:
                key, _ = varint(page, offset + 4)
            except IndexError:
                continue
            children.append((key, int.from_bytes(page[offset : offset + 4])))
        children.append((high, int.from_bytes(page[start + 8 : start + 12])))
        return children

    def _leaf_rows(self, page: bytes, start: int) -> Iterator[RawRow]:
        for offset in cells(page, start, 8):
            row = None
            try:
                size, at = varint(page, offset)
                row, at = varint(page, at)
                yield RawRow(row, _record(self._payload(page, at, size, is_table=True)))
            except (IndexError, ValueError):
                yield RawRow(row, None)

    def index_rows(self, root: int) -> Iterator[RawRow]:
        """Yield the rows of a table without row numbers that fits one page."""
        page = self._pages.read(root)
        self.visited.add(root)
        if page is None or page[0] != INDEX_LEAF:
            self.bad_pages.add(root)
            return
        for offset in cells(page, 0, 8):
            try:
                size, at = varint(page, offset)
                yield RawRow(None, _record(self._payload(page, at, size, is_table=False)))
            except (IndexError, ValueError):
                yield RawRow(None, None)

    def lost_rows(self) -> Iterator[RawRow]:
        """Yield rows of pages that no page leads to any more, if that is certain: free pages hold deleted rows."""
        free = self._free_pages()
        if not self.is_branch_lost or free is None:
            return
        for number in range(2, self._pages.n_pages + 1):
            if number not in self.visited and number not in free:
                page = self._pages.read(number)
                if page is not None and page[0] == TABLE_LEAF:
                    self.visited.add(number)
                    yield from self._leaf_rows(page, 0)

    def _free_pages(self) -> set[int] | None:
        """Return the pages that are not in use; None where their list is damaged."""
        first = self._pages.read(1)
        if first is None:
            return None
        trunk, n_free = int.from_bytes(first[32:36]), int.from_bytes(first[36:40])
        free: set[int] = set()
        while trunk:
            page = self._pages.read(trunk)
            if page is None or trunk in free:
                return None
            free.add(trunk)
            trunk, n_leaves = int.from_bytes(page[:4]), int.from_bytes(page[4:8])
            if n_leaves > self._pages.page_size // 4 - 2:
                return None
            free.update(int.from_bytes(page[8 + 4 * each : 12 + 4 * each]) for each in range(n_leaves))
        return free if len(free) == n_free else None

    def _payload(self, page: bytes, at: int, size: int, *, is_table: bool) -> bytes:
        """Return all bytes of a row, those on other pages included.

        Raises:
            ValueError: they are not there.
        """
        if not 0 < size <= _MOST_BYTES:
            raise ValueError("no row has this size")
        usable = self._pages.page_size
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if size <= most:
            local = size
        else:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
        whole = page[at : at + local]
        if len(whole) != local:
            raise ValueError("the row ends behind its page")
        if local == size:
            return whole
        parts, left = [whole], size - local
        number = int.from_bytes(page[at + local : at + local + 4])
        while left > 0:
            more = self._pages.read(number)
            if more is None:
                self.bad_pages.add(number)
                raise ValueError("a part of the row is missing")
            number = int.from_bytes(more[:4])
            parts.append(more[4 : 4 + left])
            left -= len(parts[-1])
        return b"".join(parts)


def _record(content: bytes) -> list[Any]:
    """Return the values of a row.

    Raises:
        ValueError, IndexError: they cannot be decoded.
    """
    end, at = varint(content, 0)
    kinds = []
    while at < end:
        kind = content[at]
        at += 1
        if kind >= 0x80:
            kind, at = varint(content, at - 1)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        if kind == 0:
            values.append(None)
        elif kind in (8, 9):
            values.append(kind - 8)
        elif kind < len(_INTEGER_BYTES):
            values.append(int.from_bytes(content[at : at + _INTEGER_BYTES[kind]], signed=True))
            at += _INTEGER_BYTES[kind]
        elif kind >= 12:
            size = (kind - 12) // 2
            piece = content[at : at + size]
            values.append(Text(piece) if kind % 2 else piece)
            at += size
        else:
            raise ValueError("a store holds no such value")
    if at > len(content):
        raise ValueError("the row is cut off")
    return values
