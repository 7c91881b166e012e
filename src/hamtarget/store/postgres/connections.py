"""Connections to a store's database: kept for the next call, replaced if broken, errors in this package's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hamtarget.errors import (
    CorruptFileError,
    FileError,
    HamtargetError,
    InputError,
    LockedError,
    MissingExtraError,
    PrivilegeError,
    ReadOnlyError,
    ServerError,
    WriteError,
)
from hamtarget.store.postgres.address import Address
from hamtarget.store.postgres.pool import Loan, Pool

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

_CONNECT_SECONDS = 10
_LOCK_SECONDS = 60

# One plan serves a statement for good, and it is one that looks rows up: what a search reads is known beforehand, and
# a guess from statistics could only be wrong. Where there is nothing to look up, PostgreSQL still reads all rows.
_PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
# By class of SQLSTATE, or by the whole of it.
_KINDS: dict[str, tuple[type[HamtargetError], str]] = {
    "25006": (ReadOnlyError, "this server, or this user, only reads: open it with read_only=True"),
    "28": (PrivilegeError, "see the user and the password in the address"),
    "3D000": (FileError, "make the database first, or see its name in the address"),
    "40": (LockedError, "another writer was in the way, and nothing was changed: try again"),
    "42501": (PrivilegeError, "let the owner of the tables GRANT it"),
    "42P01": (CorruptFileError, "its tables are not those of a store"),
    "42703": (CorruptFileError, "its tables are not those of a store"),
    "53": (WriteError, "nothing was changed: make room on the server, or let it have more connections"),
    "54": (InputError, "it is more than PostgreSQL can hold"),
    "55P03": (LockedError, "another writer holds the store for too long; see what it does, and try again"),
    "58": (WriteError, "nothing was changed: look after the server's disk"),
    "XX001": (CorruptFileError, "restore the database from a copy"),
    "XX002": (CorruptFileError, "REINDEX it, or restore the database from a copy"),
}


def load_psycopg() -> Any:
    """Import psycopg.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError(
            "a store in PostgreSQL needs psycopg; install it with: pip install 'hamtarget[postgres]'"
        ) from error
    return psycopg


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn errors of psycopg within the block into those of `hamtarget.errors`."""
    psycopg = load_psycopg()
    try:
        yield
    except psycopg.Error as error:
        raise _in_our_words(error, address) from error


def _in_our_words(error: Any, address: Address) -> HamtargetError:
    said = _first_line(error)
    state = error.sqlstate or ""
    for known in (state, state[:2]):
        if known in _KINDS:
            kind, advice = _KINDS[known]
            return kind(f"{address}: {said}; {advice}")
    psycopg = load_psycopg()
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        if "authentication failed" in said or "no password" in said:
            return PrivilegeError(f"{address}: {said}; see the user and the password in the address")
        if "does not exist" in said and "database" in said:
            return FileError(f"{address}: {said}; make the database first, or see its name in the address")
        return ServerError(f"{address}: {said}; see whether the server runs and can be reached, and try again")
    return CorruptFileError(f"{address}: {said}; its tables are not those of a store")


def _is_broken(error: Any) -> bool:
    """Return True if the connection is gone: the server ended it (class 57), or could not say why."""
    if not isinstance(error, load_psycopg().OperationalError | load_psycopg().InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Connections:
    """Connections to one store: a few that threads take in turns, and others for long work."""

    def __init__(self, address: Address, *, read_only: bool, asynchronous: bool) -> None:
        """Make the first connection.

        Args:
            address: of the store.
            read_only: if True, they may only read.
            asynchronous: if True, a commit does not wait for the server's disk.

        Raises:
            ServerError: the server cannot be reached.
            PrivilegeError: it does not let this user in.
        """
        self._psycopg = load_psycopg()
        self.address = address
        self._settings = {
            **_PLANNING,
            "search_path": f"{address.quoted_schema}, pg_temp",
            "lock_timeout": f"{_LOCK_SECONDS}s",
            "bytea_output": "hex",
            "client_encoding": "UTF8",
        }
        if read_only:
            self._settings["default_transaction_read_only"] = "on"
        if asynchronous:
            self._settings["synchronous_commit"] = "off"
        with translated(address):
            self._pool = Pool(self._connect)

    def _options(self) -> dict[str, Any]:
        return {
            "autocommit": True,
            "cursor_factory": self._psycopg.RawCursor,
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "hamtarget",
        }

    def _connect(self) -> Connection:
        connection: Connection = self._psycopg.connect(self.address.conninfo, **self._options())
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: Connection) -> None:
        chosen = ", ".join(f"set_config('{name}', ${place}, false)" for place, name in enumerate(self._settings, 1))
        connection.execute(f"SELECT {chosen}", list(self._settings.values()))

    def one(self, *, anew: bool = False) -> Loan:
        """Lend a connection that nobody else uses meanwhile, for a `with` block; outside of any transaction.

        Args:
            anew: if True, a new one is made: one has turned out to be broken, and the others are as old.
        """
        return self._pool.lend(anew=anew)

    @contextmanager
    def own(self) -> Iterator[Connection]:
        """Open a connection beside the shared ones, for work that may take long."""
        connection = self._connect()
        try:
            yield connection
        finally:
            connection.close()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, which only reads: it is done again if the connection turns out to be broken."""
        try:
            with self.one() as connection:
                return work(connection)
        except self._psycopg.Error as error:
            if not _is_broken(error):
                raise _in_our_words(error, self.address) from error
        with translated(self.address), self.one(anew=True) as connection:
            return work(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Begin a transaction on a connection: it is committed at the end, or rolled back if anything is raised.

        Raises:
            ServerError: among others, if the server broke off during the commit.
        """
        with ExitStack() as lent:
            with translated(self.address):
                connection = self._begin(lent)
            try:
                yield connection
            except BaseException:
                # What has broken off has been rolled back.
                with suppress(self._psycopg.Error):
                    connection.execute("ROLLBACK")
                raise
            self._commit(connection)

    def _begin(self, lent: ExitStack) -> Connection:
        connection = lent.enter_context(self.one())
        try:
            connection.execute("BEGIN")
        except self._psycopg.Error as error:
            if not _is_broken(error):
                raise
            lent.close()
            connection = lent.enter_context(self.one(anew=True))
            connection.execute("BEGIN")
        return connection

    def _commit(self, connection: Connection) -> None:
        with translated(self.address):
            try:
                connection.execute("COMMIT")
            except self._psycopg.Error as error:
                if not _is_broken(error):
                    raise
                raise ServerError(
                    f"{self.address}: the server broke off during the commit ({_first_line(error)}); the change is "
                    "there as a whole or not at all: see the store's `sequence` once the server is back"
                ) from error

    def close(self) -> None:
        """Close the connections; those in use are closed when they come back."""
        self._pool.close()


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Begin a transaction that only reads, and sees everything as it was at its beginning."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("ROLLBACK")
