"""A server that refuses: missing privileges, passwords that nobody must see, limits of the server's own."""

import traceback
from urllib.parse import quote

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.errors import CorruptFileError, HamtargetError, InputError, PrivilegeError, ServerError
from hamtarget.query import Asked
from hamtarget.store import Item, Mirror, Store
from hamtarget.store.postgres.address import parse_address

CODES = np.random.default_rng(3).integers(0, 256, (20, 8), dtype=np.uint8)
CALLS = {
    "search": lambda store: store.search(code=CODES[0]),
    "search far": lambda store: store.search(code=CODES[0], radius=40),
    "search_batch": lambda store: store.search_batch(codes=CODES),
    "filtered": lambda store: store.search(code=CODES[0], filter={"a": 1}),
    "nearest": lambda store: store.nearest(code=CODES[0], k=2),
    "probe": lambda store: store.search(Asked(logits=np.ones(64)), budget=5),
    "get": lambda store: store.get([1]),
    "count": lambda store: store.count(),
    "count filtered": lambda store: store.count({"a": 1}),
    "scan": lambda store: list(store.scan()),
    "sequence": lambda store: store.sequence,
    "sample": lambda store: store.sample_ids(3),
    "near_duplicates": lambda store: list(store.near_duplicates()),
    "verify": lambda store: store.verify(),
    "stats": lambda store: store.stats(),
    "put": lambda store: store.put([Item(1, code=CODES[1])]),
    "delete": lambda store: store.delete([1]),
    "compact": lambda store: store.compact(),
}


@pytest.fixture
def guest(postgres_stores):
    """A user who may log in, and nothing else."""
    postgres_stores.sql("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    yield lambda name="store": postgres_stores.place(name, user="guest")
    postgres_stores.sql("DROP OWNED BY guest", "DROP ROLE guest")


@pytest.mark.parametrize("taken", ["the schema", "the tables"])
def test_who_loses_all_rights_is_told_so_by_every_call(postgres_stores, guest, taken):
    postgres_stores.create(n_bits=64).close()
    schema = f'"{postgres_stores.schema()}"'
    postgres_stores.sql(
        f"GRANT ALL ON SCHEMA {schema} TO guest", f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO guest"
    )
    with Store.open(guest()) as store, Mirror(guest(), age=0) as mirror:
        store.put([Item(number, code=code, payload={"a": 1}) for number, code in enumerate(CODES)])
        assert len(mirror.search(CODES[0])) == 1
        if taken == "the schema":
            postgres_stores.sql(f"REVOKE ALL ON SCHEMA {schema} FROM guest")
        else:
            postgres_stores.sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM guest")
        for call in CALLS.values():
            with pytest.raises(PrivilegeError, match="GRANT"):
                call(store)
        with pytest.raises(PrivilegeError, match="GRANT"):
            mirror.search(CODES[0])
    for open_it in (Store.open, Mirror):
        with pytest.raises(PrivilegeError, match="GRANT"):
            open_it(guest())


def test_who_may_not_make_tables_makes_none_anywhere(postgres_stores, guest):
    with pytest.raises(PrivilegeError, match="GRANT"):
        Store.create(guest("new"), n_bits=64)
    for rights in ("", "USAGE", "CREATE"):
        postgres_stores.sql(f'CREATE SCHEMA IF NOT EXISTS "{postgres_stores.schema("mine")}"')
        if rights:
            postgres_stores.sql(f'GRANT {rights} ON SCHEMA "{postgres_stores.schema("mine")}" TO guest')
        with pytest.raises(PrivilegeError, match="GRANT USAGE, CREATE"):
            Store.create(guest("mine"), n_bits=64)
        postgres_stores.sql(f'REVOKE ALL ON SCHEMA "{postgres_stores.schema("mine")}" FROM guest')


def test_who_is_not_let_in_is_told(postgres_stores, guest):
    with pytest.raises(PrivilegeError, match="user and the password"):
        Store.open(postgres_stores.place(user="nobody"))
    postgres_stores.sql("ALTER ROLE guest NOLOGIN")
    with pytest.raises(PrivilegeError, match="user and the password"):
        Store.open(guest())


def test_a_server_without_connections_left_is_told(postgres_stores, guest):
    postgres_stores.create(n_bits=64).close()
    schema = f'"{postgres_stores.schema()}"'
    postgres_stores.sql(
        f"GRANT ALL ON SCHEMA {schema} TO guest",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO guest",
        "ALTER ROLE guest CONNECTION LIMIT 1",
    )
    with Store.open(guest()) as store:
        with pytest.raises(ServerError, match="close other connections"):
            Store.open(guest())
        with pytest.raises(ServerError, match="close other connections"):
            next(store.scan())
        assert store.count() == 0


def test_a_timeout_of_the_server_is_told(postgres_stores, guest):
    with postgres_stores.create(n_bits=64) as store:
        store.put([Item(1, code=CODES[0])])
    schema = f'"{postgres_stores.schema()}"'
    postgres_stores.sql(
        f"GRANT ALL ON SCHEMA {schema} TO guest",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO guest",
        "ALTER ROLE guest SET statement_timeout = '200ms'",
    )
    with Store.open(guest()) as store:
        postgres_stores.sql(
            "ALTER TABLE items RENAME TO all_items",
            "CREATE VIEW items AS SELECT i.* FROM all_items i WHERE pg_sleep(5) IS NOT NULL",
            "GRANT ALL ON items TO guest",
        )
        for call in (CALLS["search"], CALLS["count filtered"]):
            with pytest.raises(ServerError, match="statement_timeout"):
                call(store)


def test_a_store_without_its_state_is_damaged(postgres_stores):
    with postgres_stores.create(n_bits=64) as store, Mirror(postgres_stores.place(), age=0) as mirror:
        postgres_stores.sql("DELETE FROM state")
        for name in ("sequence", "stats", "verify", "put", "compact"):
            with pytest.raises(CorruptFileError, match="restore the database"):
                CALLS[name](store)
        with pytest.raises(CorruptFileError, match="restore the database"):
            mirror.search(CODES[0])
    with pytest.raises(CorruptFileError, match="restore the database"):
        Mirror(postgres_stores.place())


SECRET = "kept{}hidden"
PARTS = ("kept", "hidden")


def told_about(error):
    """Return all that a program could print of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.__context__) + str(error.__cause__)


@pytest.mark.parametrize(
    "character", ["@", ":", "/", "#", "%", "?", " ", "@x/", "?a=", "/1?b@", "\t", "&", "[", "'", "\\", ","]
)
@pytest.mark.parametrize("escaped", [False, True])
def test_a_password_is_never_told(tmp_path, character, escaped):
    password = SECRET.format(character)
    address = f"postgresql://me:{quote(password, safe='') if escaped else password}@localhost:1/db?store=x"
    result = CliRunner().invoke(__import__("hamtarget.cli.main", fromlist=["app"]).app, ["info", address])
    assert result.exit_code == 2
    told = [result.output]
    for call in (Store.open, Mirror, lambda place: Store.create(place, n_bits=64)):
        with pytest.raises(HamtargetError) as failed:
            call(address)
        told.append(told_about(failed.value))
        if escaped:
            assert isinstance(failed.value, ServerError)
        elif isinstance(failed.value, InputError):
            assert "%40" in str(failed.value)
    try:
        told.append(repr(parse_address(address)) + str(parse_address(address)))
        assert f"password='{password}'".replace("\\", "\\\\") in parse_address(address).conninfo or character == "'"
    except InputError:
        assert not escaped
    for text in told:
        # The source of this test, which a traceback shows, names no password.
        assert not any(part in text for part in PARTS), text


def test_a_password_that_is_wrong_or_a_parameter_is_not_told(postgres_stores):
    for address in (
        "postgresql://localhost:1/db?password=kepthidden&user=me",
        "postgresql://localhost:1/db?sslpassword=kepthidden&user=me",
        "postgresql://me:1234?kepthidden",
        "postgresql://me:kepthidden",
        "postgresql://localhost/db?kepthidden=1",
    ):
        with pytest.raises(HamtargetError) as failed:
            Store.open(address)
        assert "kepthidden" not in told_about(failed.value)


def test_an_address_with_several_hosts_is_understood():
    address = parse_address("postgresql://me:a:b@[::1]:5433,two/db?target_session_attrs=read-write")
    assert "host='::1,two' port='5433,'" in address.conninfo
    assert address.shown == "postgresql://me@[::1]:5433,two/db?target_session_attrs=read-write&store=hamtarget"
