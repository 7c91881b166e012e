"""One transaction of a store: rows go to the database at once, and to the index when it is committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hamtarget.errors import WriteError
from hamtarget.items import Id
from hamtarget.store.items.batches import Batch
from hamtarget.store.items.code_rows import expand, place_items
from hamtarget.store.items.ids import byte_rows
from hamtarget.store.live import Change, DeleteRows, PutRows
from hamtarget.store.sqlite.tables.database import translated
from hamtarget.store.sqlite.tables.rows import delete_items, find_rows, read_existing, write_items, write_names
from hamtarget.store.sqlite.tables.state import read_state, write_state


class Writing:
    """A transaction and what it has done so far.

    Attributes:
        sequence: the transaction's number.
        changes: what the index has to follow.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection = connection
        self._file = file
        self._state = read_state(connection)
        self._next_row = self._state.next_row
        self.sequence = self._state.sequence + 1
        self.changes: list[Change] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Begin a part of the transaction: if anything is raised in it, that part is undone, and the rest stays."""
        n_changes, next_row = len(self.changes), self._next_row
        with translated(self._file):
            self._check_open()
            self._connection.execute("SAVEPOINT part")
        try:
            yield
            with translated(self._file):
                self._connection.execute("RELEASE part")
        except BaseException:
            # A full disk has undone the whole transaction; `finish` then refuses to commit.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO part")
                self._connection.execute("RELEASE part")
            del self.changes[n_changes:]
            self._next_row = next_row
            raise

    def put(self, batch: Batch) -> None:
        """Put items, in place of those with the same ids."""
        batch = batch.without_repeats()
        with translated(self._file):
            self._check_open()
            rows = self._rows(batch)
            write_items(
                self._connection,
                rows,
                byte_rows(batch.codes),
                None if batch.embeddings is None else byte_rows(batch.embeddings),
                batch.payloads_of_codes(),
                changed=self.sequence,
            )
        self.changes.append(PutRows(np.array(rows, dtype=np.int64), batch.codes, batch.embeddings))

    def delete(self, ids: list[Id]) -> int:
        """Delete these ids, and return how many of them were there."""
        with translated(self._file):
            self._check_open()
            return self._delete(list(find_rows(self._connection, ids).values()))

    def _delete(self, item_rows: list[int]) -> int:
        """Delete items by their first rows, and return how many of them were there."""
        found = read_existing(self._connection, item_rows)
        rows = list(expand(found))
        delete_items(self._connection, rows, changed=self.sequence)
        if rows:
            self.changes.append(DeleteRows(np.array(rows, dtype=np.int64)))
        return len(found)

    def finish(self) -> None:
        """Write the new state; to be called last, before the commit.

        Raises:
            WriteError: a failure, which the caller caught, has undone the transaction.
        """
        self._check_open()
        if not self.changes:
            return
        write_state(self._connection, self._state._replace(sequence=self.sequence, next_row=self._next_row))

    def _check_open(self) -> None:
        if not self._connection.in_transaction:
            raise WriteError("the transaction was undone by the failure before; nothing was changed: begin it again")

    def _rows(self, batch: Batch) -> list[int]:
        """Return row numbers of the codes; new ones for items that need some, and have none or another number."""
        known = find_rows(self._connection, batch.ids)
        placed = place_items(batch.ids, batch.all_counts, known, self._next_row)
        if placed.left:
            self._delete(placed.left)
        write_names(self._connection, placed.names)
        self._next_row = placed.next_row
        return placed.rows if batch.counts is None else list(expand(placed.rows))
