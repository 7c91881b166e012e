"""One transaction of a store in PostgreSQL: whoever begins one waits for the one before to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from hamtarget.items import Id
from hamtarget.store.batches import Batch
from hamtarget.store.ids import FIRST_NAMED_ROW, is_direct
from hamtarget.store.postgres.rows import copy_in, copy_names, id_of, integers, name_of, only_row

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection, Connections


class PostgresWriting:
    """A transaction and what it has done so far.

    The row of `state` is locked from beginning to end. So transactions come one after another, and their numbers are
    in the order in which others see them: who has read up to a number has missed nothing before it.
    """

    def __init__(self, connection: Connection, connections: Connections) -> None:
        """Take over a transaction that has just begun on one of the connections."""
        self._connection = connection
        self._connections = connections
        found = only_row(connection, "SELECT sequence, next_row, n_items FROM state FOR UPDATE")
        self._sequence, self._next_row, self._n_items = found[0] + 1, found[1], found[2]
        self._has_changes = False

    @contextmanager
    def part(self) -> Iterator[None]:
        """Begin a part of the transaction: if anything is raised in it, that part is undone, and the rest stays."""
        before = self._next_row, self._n_items, self._has_changes
        with self._connections.translated():
            self._connection.execute("SAVEPOINT part")
        try:
            yield
            with self._connections.translated():
                self._connection.execute("RELEASE part")
        except BaseException:
            self._next_row, self._n_items, self._has_changes = before
            if not self._connection.closed:
                with self._connections.translated():
                    self._connection.execute("ROLLBACK TO part")
                    self._connection.execute("RELEASE part")
            raise

    def put(self, batch: Batch) -> None:
        """Put items, in place of those with the same ids."""
        batch = batch.without_repeats()
        if not batch.ids:
            return
        with self._connections.translated():
            known = self._find_rows(batch.ids)
            fresh = dict(zip((id for id in batch.ids if id not in known), count(self._next_row), strict=False))
            self._next_row += len(fresh)
            if fresh:
                copy_names(self._connection, fresh)
            known.update(fresh)
            rows = [known[id] for id in batch.ids]
            # All columns are new, and all of them are in some index: an update would write as much.
            n_replaced = self._delete_rows(rows) if self._n_items else 0
            copy_in(self._connection, rows, batch, changed=self._sequence)
        self._n_items += len(rows) - n_replaced
        self._has_changes = True

    def delete(self, ids: list[Id]) -> int:
        """Delete these ids, and return how many of them were there."""
        with self._connections.translated():
            rows = list(self._find_rows(ids).values())
            found = self._connection.execute(
                "DELETE FROM items WHERE row = ANY($1::bigint[]) RETURNING row", [integers(rows)]
            ).fetchall()
            if not found:
                return 0
            gone = [row for (row,) in found]
            named = [row for row in gone if row >= FIRST_NAMED_ROW]
            if named:
                self._connection.execute("DELETE FROM names WHERE row = ANY($1::bigint[])", [integers(named)])
            self._connection.execute(
                "INSERT INTO deleted SELECT row, $2 FROM unnest($1::bigint[]) AS row "
                "ON CONFLICT (row) DO UPDATE SET changed = excluded.changed",
                [integers(gone), self._sequence],
            )
        self._n_items -= len(gone)
        self._has_changes = True
        return len(gone)

    def finish(self) -> None:
        """Write the new state; to be called last, before the commit."""
        if self._has_changes:
            self._connection.execute(
                "UPDATE state SET sequence = $1, next_row = $2, n_items = $3",
                [self._sequence, self._next_row, self._n_items],
            )

    def _delete_rows(self, rows: list[int]) -> int:
        return self._connection.execute("DELETE FROM items WHERE row = ANY($1::bigint[])", [integers(rows)]).rowcount

    def _find_rows(self, ids: list[Id]) -> dict[Id, int]:
        """Return row numbers of those ids that have one; an id that is its own has it even if there is no such item."""
        found: dict[Id, int] = {id: id for id in ids if is_direct(id)}
        names = [name_of(id) for id in ids if id not in found]
        if names:
            rows = self._connection.execute("SELECT row, name FROM names WHERE name = ANY($1)", [names], binary=True)
            found.update((id_of(row, name), row) for row, name in rows)
        return found
