"""Connections to a store's database: kept for the next call, replaced if broken, errors in this package's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from hamtarget._core import _native
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
from hamtarget.store.postgres.limited import connection_class
from hamtarget.store.postgres.pool import Loan, Pool

if TYPE_CHECKING:
    from hamtarget.store.postgres.limited import LimitedConnection

    Connection = LimitedConnection

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
# SQLSTATEs of a table, or a schema, that is not there.
_NOT_THERE = ("42P01", "3F000")
# By class of SQLSTATE, or by the whole of it.
_KINDS: dict[str, tuple[type[HamtargetError], str]] = {
    "25006": (ReadOnlyError, "this server, or this user, only reads: open it with read_only=True"),
    "28": (PrivilegeError, "see the user and the password in the address"),
    "3D000": (FileError, "make the database first, or see its name in the address"),
    "40": (LockedError, "another writer was in the way, and nothing was changed: try again"),
    "42501": (PrivilegeError, "let the owner of the tables GRANT it"),
    "3F000": (CorruptFileError, "its tables are not those of a store"),
    "42P01": (CorruptFileError, "its tables are not those of a store"),
    "42703": (CorruptFileError, "its tables are not those of a store"),
    "53": (WriteError, "nothing was changed: make room on the server"),
    "53300": (ServerError, "close other connections, or let the server have more of them, and try again"),
    "54": (InputError, "it is more than PostgreSQL can hold"),
    "55P03": (LockedError, "another writer holds the store for too long; see what it does, and try again"),
    "57014": (ServerError, "the server's statement_timeout, or its administrator, ended it: ask for less, or raise it"),
    "57P": (ServerError, "the server ends, starts or ended this connection: try again"),
    "58": (WriteError, "nothing was changed: look after the server's disk"),
    "XX001": (CorruptFileError, "restore the database from a copy"),
    "XX002": (CorruptFileError, "REINDEX it, or restore the database from a copy"),
}
# What a server that lets nobody in says; libpq gives no SQLSTATE for it.
_REFUSALS: dict[tuple[str, ...], tuple[type[HamtargetError], str]] = {
    ("authentication failed", "no password", "pg_hba.conf", "not permitted to log in", "permission denied"): _KINDS[
        "28"
    ],
    ("too many clients", "too many connections", "connection slots"): _KINDS["53300"],
    ("database system is", "is not accepting connections", "not currently accepting"): _KINDS["57P"],
    ('FATAL:  database "',): _KINDS["3D000"],
    ('FATAL:  role "',): _KINDS["28"],
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


def _in_our_words(error: Any, address: Address) -> HamtargetError:
    said = _first_line(error)
    state = error.sqlstate or ""
    for known in (state, state[:3], state[:2]):
        if known in _KINDS:
            kind, advice = _KINDS[known]
            return kind(f"{address}: {said}; {advice}")
    psycopg = load_psycopg()
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        for words, (kind, advice) in _REFUSALS.items():
            if any(word in str(error) for word in words):
                return kind(f"{address}: {said}; {advice}")
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
        self._check_parameters()
        with self.translated():
            self._pool = Pool(self._connect)

    def _check_parameters(self) -> None:
        """Check that libpq knows all that the address names.

        Raises:
            InputError: it does not.
        """
        known = True
        try:
            self._psycopg.conninfo.conninfo_to_dict(self.address.conninfo)
        except self._psycopg.Error:
            # Which name it is may be part of a password that is not escaped: this error is not told.
            known = False
        if not known:
            raise InputError(
                f"{self.address.shown.partition('?')[0]}: a name after the ? of the address is none that libpq knows; "
                "expected store=, or a parameter of libpq such as sslmode="
            )

    def _connect(self, limits: _native.Limits | None = None) -> Connection:
        # libpq waits for 2 seconds at least.
        seconds = _CONNECT_SECONDS if limits is None else ceil(min(_CONNECT_SECONDS, max(0.0, limits.seconds_left)))
        connection: Connection = connection_class().connect(
            self.address.conninfo,
            autocommit=True,
            cursor_factory=self._psycopg.RawCursor,
            connect_timeout=seconds,
            application_name="hamtarget",
        )
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: Connection) -> None:
        chosen = ", ".join(f"set_config('{name}', ${place}, false)" for place, name in enumerate(self._settings, 1))
        connection.execute(f"SELECT {chosen}", list(self._settings.values()))

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn errors of psycopg within the block into those of `hamtarget.errors`."""
        try:
            yield
        except self._psycopg.Error as error:
            raise self._in_our_words(error) from error

    def _in_our_words(self, error: Any) -> HamtargetError:
        if error.sqlstate in _NOT_THERE and self._may_not_look():
            return PrivilegeError(
                f"{self.address}: this user may not look into the schema {self.address.schema!r}; let its owner GRANT "
                "USAGE on it"
            )
        return _in_our_words(error, self.address)

    def _may_not_look(self) -> bool:
        """Return True if the schema is there and the user may not use it: its tables are as if they were not there."""
        sql = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1"
        with suppress(self._psycopg.Error), self.own() as connection:
            return connection.execute(sql, [self.address.schema]).fetchone() == (False,)
        return False

    def one(self, *, anew: bool = False) -> Loan:
        """Lend a connection that nobody else uses meanwhile, for a `with` block; outside of any transaction.

        Args:
            anew: if True, a new one is made: one has turned out to be broken, and the others are as old.
        """
        return self._pool.lend(anew=anew)

    @contextmanager
    def own(self, limits: _native.Limits | None = None) -> Iterator[Connection]:
        """Open a connection beside the shared ones, for work that may take long, or until it reaches its limits."""
        connection = self._connect(limits)
        connection.limits = limits
        try:
            yield connection
        finally:
            connection.close()

    def read(self, do: Callable[[Connection], T], limits: _native.Limits | None = None) -> T:
        """Return what `do` returns, which only reads: it is done again if the connection turns out to be broken.

        Raises:
            LimitError: the time is over, or the work was cancelled, by then; the server has ended it.
        """
        try:
            return self._lend_to(do, limits, anew=False)
        except self._psycopg.Error as error:
            if not _is_broken(error):
                raise self._in_our_words(error) from error
        with self.translated():
            return self._lend_to(do, limits, anew=True)

    def _lend_to(self, do: Callable[[Connection], T], limits: _native.Limits | None, *, anew: bool) -> T:
        with self.one(anew=anew) as connection:
            if limits is None:
                return do(connection)
            connection.limits = limits
            try:
                return do(connection)
            finally:
                connection.limits = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Begin a transaction on a connection: it is committed at the end, or rolled back if anything is raised.

        Raises:
            ServerError: among others, if the server broke off during the commit.
        """
        with ExitStack() as lent:
            with self.translated():
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
        with self.translated():
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
            # It takes no time, and leaves the connection fit for others, also where the time is over.
            connection.limits = None
            # After a ROLLBACK, psycopg would prepare all its statements anew.
            connection.execute("COMMIT")
