"""One transaction of a store in PostgreSQL: whoever begins one waits for the one before to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hamtarget.items import Id
from hamtarget.store.items.batches import Batch
from hamtarget.store.items.code_rows import are_further, expand, place_items
from hamtarget.store.items.ids import FIRST_NAMED_ROW, is_direct
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
        found = only_row(connection, "SELECT sequence, next_row, n_items, n_further FROM state FOR UPDATE")
        self._sequence, self._next_row, self._n_codes, self._n_further = found[0] + 1, *found[1:]
        self._has_changes = False

    @contextmanager
    def part(self) -> Iterator[None]:
        """Begin a part of the transaction: if anything is raised in it, that part is undone, and the rest stays."""
        before = self._next_row, self._n_codes, self._n_further, self._has_changes
        with self._connections.translated():
            self._connection.execute("SAVEPOINT part")
        try:
            yield
            with self._connections.translated():
                self._connection.execute("RELEASE part")
        except BaseException:
            self._next_row, self._n_codes, self._n_further, self._has_changes = before
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
            placed = place_items(batch.ids, batch.all_counts, known, self._next_row)
            if placed.left:
                self._delete(placed.left)
            self._next_row = placed.next_row
            if placed.names:
                copy_names(self._connection, placed.names)
            rows = placed.rows if batch.counts is None else list(expand(placed.rows))
            # All columns are new, and all of them are in some index: an update would write as much.
            n_replaced = self._delete_rows(rows) if self._n_codes else 0
            copy_in(self._connection, rows, batch, changed=self._sequence)
            self._count_further(list(expand(placed.names.values())), 1)
        self._n_codes += len(rows) - n_replaced
        self._has_changes = True

    def delete(self, ids: list[Id]) -> int:
        """Delete these ids, and return how many of them were there."""
        with self._connections.translated():
            return self._delete(list(self._find_rows(ids).values()))

    def _delete(self, item_rows: list[int]) -> int:
        """Delete items by their first rows, and return how many of them were there."""
        found = self._connection.execute(
            "DELETE FROM items WHERE row = ANY($1::bigint[]) RETURNING row", [integers(expand(item_rows))]
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
        n_further = self._count_further(gone, -1)
        self._n_codes -= len(gone)
        self._has_changes = True
        return len(gone) - n_further

    def _count_further(self, rows: list[int], sign: int) -> int:
        """Count rows that are not the first of their item as added or gone, and return how many there are."""
        n_further = int(are_further(np.array(rows, dtype=np.int64)).sum())
        self._n_further += sign * n_further
        return n_further

    def finish(self) -> None:
        """Write the new state; to be called last, before the commit."""
        if self._has_changes:
            self._connection.execute(
                "UPDATE state SET sequence = $1, next_row = $2, n_items = $3, n_further = $4",
                [self._sequence, self._next_row, self._n_codes, self._n_further],
            )

    def _delete_rows(self, rows: list[int]) -> int:
        return self._connection.execute("DELETE FROM items WHERE row = ANY($1::bigint[])", [integers(rows)]).rowcount

    def _find_rows(self, ids: list[Id]) -> dict[Id, int]:
        """Return first rows of those ids that have one; an id that is its own has it even if there is no such item."""
        found: dict[Id, int] = {id: id for id in ids if is_direct(id)}
        # With several codes, an integer has a number as well.
        names = [name_of(id) for id in ids if self._n_further or id not in found]
        if names:
            rows = self._connection.execute("SELECT row, name FROM names WHERE name = ANY($1)", [names], binary=True)
            found.update((id_of(row, name), row) for row, name in rows)
        return found
