"""A search for one code: a prepared statement, run by libpq's own calls.

A cursor of psycopg, which can do much more, takes longer than the server needs to find the rows.
"""

from __future__ import annotations

import select
import struct
from typing import TYPE_CHECKING
from weakref import WeakSet

from hamtarget.codes import Codes
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW, item_row
from hamtarget.store.postgres.connections import load_psycopg
from hamtarget.store.postgres.limited import LOOK_SECONDS, Watch
from hamtarget.store.postgres.rows import bit_value
from hamtarget.store.postgres.statements import one_sql

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from hamtarget.store.postgres.connections import Connection

Near = tuple[int, int, bytes | None]
"""Distance, row, and name, where names were asked for."""

# PostgreSQL's number of the type bit, the same in every database.
_BIT = 1560
# SQLSTATE of a wait for a lock that was given up.
_LOCKED = b"55P03"
# SQLSTATE of a prepared statement that is not there.
_NOT_PREPARED = b"26000"
_integer = struct.Struct(">q").unpack


class OneCodeSearch:
    """A search for everything within one radius of a code."""

    def __init__(self, n_bits: int, substrings: int, radius: int, *, most: int, has_names: bool) -> None:
        """Prepare a search that connections of one store will make; the radius is below the number of substrings.

        Args:
            n_bits: bits of a code.
            substrings: that the store has.
            radius: to be looked within.
            most: rows that are returned at most; any, if there are more.
            has_names: if True, names are read with the rows.
        """
        psycopg = load_psycopg()
        self._error = psycopg.Error
        self._prepared_now = psycopg.pq.ExecStatus.COMMAND_OK
        self._answered = psycopg.pq.ExecStatus.TUPLES_OK
        self._state = psycopg.pq.DiagnosticField.SQLSTATE
        self._error_of = psycopg.errors.error_from_result
        self._binary = psycopg.pq.Format.BINARY
        self._has_names = has_names
        self._name = f"hamtarget_{radius}{'_named' if has_names else ''}".encode()
        self._sql = one_sql(n_bits, substrings, radius, most=most, has_names=has_names).encode()
        self._ready: WeakSet[Connection] = WeakSet()

    def near(self, connection: Connection, code: Codes) -> list[Near] | None:
        """Return what is near the code, nearest first; None if the server refused: a cursor then tells why.

        Args:
            connection: outside of any transaction.
            code: (n_bits / 8,).

        Raises:
            psycopg.Error: it waited for a table until it gave up; a cursor would wait as long again.
            LimitError: the time was over before, or the work was cancelled.
        """
        if connection.limits is not None:
            connection.limits.check()
        try:
            result = self._ask(connection, bit_value(code))
            if result is not None and result.error_field(self._state) == _NOT_PREPARED:
                # psycopg forgets all statements after a transaction that failed.
                self._ready.discard(connection)
                result = self._ask(connection, bit_value(code))
        except self._error:
            return None
        if result is None or result.status != self._answered:
            if result is not None and result.error_field(self._state) == _LOCKED:
                raise self._error_of(result)
            return None
        value = result.get_value
        found: list[Near] = [
            (
                _integer(value(place, 1))[0],  # type: ignore[arg-type]
                _integer(value(place, 0))[0],  # type: ignore[arg-type]
                value(place, 2) if self._has_names else None,
            )
            for place in range(result.ntuples)
        ]
        # Rows are distinct: names are never compared.
        found.sort()
        return found

    def _ask(self, connection: Connection, code: bytes) -> PGresult | None:
        pgconn = connection.pgconn
        if connection not in self._ready:
            pgconn.send_prepare(self._name, self._sql, [_BIT])
            prepared = _answer(connection)
            if prepared is None or prepared.status != self._prepared_now:
                return None
            self._ready.add(connection)
        pgconn.send_query_prepared(self._name, [code], [self._binary], self._binary)
        return _answer(connection)


def once_each(found: list[Near]) -> list[Near]:
    """Return the nearest code of each item, by the item's first row; the list itself where items have one code."""
    if all(near[1] < FIRST_SEVERAL_ROW for near in found):
        return found
    first: dict[int, Near] = {}
    for distance, row, name in found:
        first.setdefault(item_row(row), (distance, item_row(row), name))
    return list(first.values())


def _answer(connection: Connection) -> PGresult | None:
    """Return what the server answers; unlike those of libpq, this wait can be interrupted, and ends with the limits.

    Raises:
        LimitError: the time was over before, or the work was cancelled.
    """
    pgconn = connection.pgconn
    watch = None if connection.limits is None else Watch(connection, connection.limits)
    if not pgconn.flush():
        waiting = select.poll()
        waiting.register(pgconn.socket, select.POLLIN)
        while not waiting.poll(None if watch is None else 1000 * LOOK_SECONDS) and watch is not None:
            watch.look()
    result = pgconn.get_result()
    # Each answer ends with nothing.
    while pgconn.get_result() is not None:
        pass
    if watch is not None:
        watch.end()
    return result
