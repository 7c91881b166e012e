"""The tables of a store in PostgreSQL: made and recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget.codes import substring_bounds
from hamtarget.errors import FileError, PrivilegeError, UnsupportedFileError
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.postgres.address import Address
from hamtarget.store.postgres.rows import only_row
from hamtarget.store.settings import Settings, settings_of

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

# bit_count came with 14.
_OLDEST_SERVER = 14
# "HAMT": who makes tables waits for others who do.
_LOCK = 0x48414D54
_VERSION = 1
_INTEGER_BITS = 32
_BIGINT_BITS = 64

# `row` is the number by which an item is found: its id, if that is an integer below 2**62, else one that `names` gives
# an id for. `payload` is JSON to the letter; `fields` holds its top-level values as filters compare them. `changed` is
# the number of the transaction that wrote the row. A row of `deleted` says that an item was removed in transaction
# `changed`, unless it is in `items` again; `state.forgotten`: those up to this transaction have been removed.
# `state.n_items` counts codes, and `state.n_further` those that are not the first of their item. `tuning` has what was
# measured for a number of neighbours, where the store keeps vectors. A code that is stored PLAIN need not be copied to
# be compared, which makes a batch of searches a few percent faster.
_TABLES = """
CREATE TABLE schema_version (version integer PRIMARY KEY);
CREATE TABLE settings (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE state (
    only_row integer PRIMARY KEY CHECK (only_row = 1),
    sequence bigint NOT NULL,
    next_row bigint NOT NULL,
    forgotten bigint NOT NULL,
    n_items bigint NOT NULL,
    n_further bigint NOT NULL
);
CREATE TABLE items (
    row bigint PRIMARY KEY,
    changed bigint NOT NULL,
    code bit({n_bits}) NOT NULL,
    embedding bytea,
    payload json,
    fields jsonb,
    {substrings}
);
ALTER TABLE items ALTER COLUMN code SET STORAGE PLAIN;
CREATE INDEX items_by_change ON items (changed);
CREATE TABLE names (row bigint PRIMARY KEY, name bytea NOT NULL UNIQUE);
CREATE TABLE deleted (row bigint PRIMARY KEY, changed bigint NOT NULL);
CREATE INDEX deleted_by_change ON deleted (changed);
CREATE TABLE encoder (name text PRIMARY KEY, content bytea NOT NULL);
CREATE TABLE tuning (k bigint PRIMARY KEY, value text NOT NULL);
INSERT INTO schema_version VALUES ({version});
INSERT INTO state VALUES (1, 0, {next_row}, 0, 0, 0);
"""


def substring_type(length: int) -> str:
    """Return the type of PostgreSQL that holds a substring of so many bits."""
    return "integer" if length <= _INTEGER_BITS else "bigint" if length <= _BIGINT_BITS else f"bit({length})"


def substring_of(code: str, start: int, stop: int) -> str:
    """Return SQL for bits `start` to `stop` of a code, as its column holds them."""
    return f"substring({code} from {start + 1} for {stop - start})::{substring_type(stop - start)}"


N_FURTHER_SQL = "n_further"
"""SQL for the number of codes that are not the first of their item, in a query of `state`."""


def _tables(settings: Settings) -> str:
    """Return the statements that make all tables and indexes."""
    bounds = substring_bounds(settings.n_bits, settings.substrings)
    columns = [
        f"substring_{number} {substring_type(stop - start)} "
        f"GENERATED ALWAYS AS ({substring_of('code', start, stop)}) STORED"
        for number, (start, stop) in enumerate(bounds)
    ]
    # A code and its row are in the index, so that a search need not read the table.
    indexes = [
        f"CREATE INDEX items_by_substring_{number} ON items (substring_{number}, code, row);"
        for number in range(len(bounds))
    ]
    tables = _TABLES.format(
        n_bits=settings.n_bits, substrings=",\n    ".join(columns), next_row=FIRST_NAMED_ROW, version=_VERSION
    )
    return tables + "\n".join(indexes)


def create_tables(connection: Connection, address: Address, settings: Settings, encoder: dict[str, bytes]) -> None:
    """Make the schema an empty store, or leave it as it was.

    Args:
        connection: outside of any transaction.
        address: of the store.
        settings: of the new store.
        encoder: files of the encoder by name.

    Raises:
        FileError: the schema has tables already.
        PrivilegeError: the user may not make any there.
        UnsupportedFileError: the server is too old, or not in UTF-8.
    """
    version = connection.info.server_version // 10_000
    if version < _OLDEST_SERVER:
        raise UnsupportedFileError(f"{address}: PostgreSQL is {version}; a store needs {_OLDEST_SERVER} or later")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise UnsupportedFileError(f"{address}: the database is in {encoding}; make one with ENCODING 'UTF8'")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1)", [_LOCK])
        if _has_relations(connection, address.schema):
            raise FileError(f"{address} is there and is not an empty schema; choose another, or Store.open it")
        rights = "has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')"
        found = connection.execute(f"SELECT {rights} FROM pg_namespace WHERE nspname = $1", [address.schema]).fetchone()
        if found is None:
            connection.execute(f"CREATE SCHEMA {address.quoted_schema}")
        elif not found[0]:
            # The tables would be temporary ones.
            raise PrivilegeError(
                f"{address}: this user may not make tables in the schema {address.schema!r}; let its owner GRANT "
                "USAGE, CREATE on it"
            )
        for statement in _tables(settings).split(";\n"):
            connection.execute(statement)
        for name, value in settings.as_texts().items():
            connection.execute("INSERT INTO settings VALUES ($1, $2)", [name, value])
        for name, content in encoder.items():
            connection.execute("INSERT INTO encoder VALUES ($1, $2)", [name, content])


def open_tables(connection: Connection, address: Address) -> Settings:
    """Check that the schema has the tables of a store, and return the settings of the store.

    Raises:
        FileError: there is no store.
        UnsupportedFileError: it has another version.
    """
    found = connection.execute(
        "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'schema_version'", [address.schema]
    ).fetchone()
    if found is None:
        what = "holds something else" if _has_relations(connection, address.schema) else "is empty or not there"
        raise FileError(f"{address} is no store: its schema {what}; make one with Store.create or `hamtarget add`")
    (version,) = only_row(connection, "SELECT max(version) FROM schema_version")
    if version != _VERSION:
        raise UnsupportedFileError(
            f"{address} has version {version}; this hamtarget reads version {_VERSION}: install the hamtarget that "
            "wrote it"
        )
    return settings_of(dict(connection.execute("SELECT name, value FROM settings").fetchall()))


def _has_relations(connection: Connection, schema: str) -> bool:
    sql = "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 LIMIT 1"
    return connection.execute(sql, [schema]).fetchone() is not None
