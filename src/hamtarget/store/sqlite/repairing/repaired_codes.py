"""Items with several codes of which some did not come back: they go on with those that did."""

from __future__ import annotations

import sqlite3

from hamtarget.store.items.code_rows import INCOMPLETE_SQL, place_items
from hamtarget.store.items.ids import name_checksum
from hamtarget.store.sqlite.tables.rows import read_records, write_items


def complete_items(connection: sqlite3.Connection, next_row: int) -> tuple[set[int], int]:
    """Give items of which codes are missing rows for those that are left, because a row tells how many there are.

    Args:
        connection: in a transaction; every item has its name.
        next_row: the next number to give.

    Returns:
        First rows that these items had, and the next number to give.
    """
    incomplete = {row for row, _ in connection.execute(INCOMPLETE_SQL)}
    for row in sorted(incomplete):
        own = "SELECT row FROM items WHERE row >= ? AND row < ? + 64"
        rows = sorted(number for (number,) in connection.execute(own, (row, row)))
        ((id, changed),) = connection.execute(
            "SELECT id, changed FROM names JOIN items USING (row) WHERE row = ?", (row,)
        ).fetchall()
        found = read_records(connection, rows)
        records = [found[number] for number in rows]
        connection.executemany("DELETE FROM items WHERE row = ?", ((number,) for number in rows))
        connection.execute("DELETE FROM names WHERE row = ?", (row,))
        placed = place_items([id], [len(rows)], {}, next_row)
        next_row, first = placed.next_row, placed.rows[0]
        embeddings = [record[2] for record in records]
        write_items(
            connection,
            range(first, first + len(rows)),
            [record[1] for record in records],
            [each for each in embeddings if each is not None] or None,
            [record[3] for record in records],
            changed=changed,
        )
        connection.executemany(
            "INSERT INTO names VALUES (?, ?, ?)",
            ((number, name, name_checksum(number, name)) for name, number in placed.names.items()),
        )
    return incomplete, next_row
