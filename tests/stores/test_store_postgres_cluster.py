"""The recipe of docs/postgresql.md for several servers, made as it stands there, with two of them."""

import re
from pathlib import Path

import numpy as np
import pytest

from hamtarget.store import Item, Mirror, Store

RECIPE = Path(__file__).parents[2] / "docs" / "postgresql.md"
RNG = np.random.default_rng(23)
CODES = RNG.integers(0, 256, (300, 8), dtype=np.uint8)
CODES[150:] = CODES[:150]
CODES[150:, 2] ^= 1


def recipe():
    """The SQL of the page, between its two markers."""
    page = RECIPE.read_text()
    (block,) = re.findall(r"<!-- cluster -->\n```sql\n(.*?)```", page, re.DOTALL)
    return block


@pytest.fixture(scope="module")
def servers(postgres_server):
    from research.benchmarks.postgres_server import Server, binaries, has_extension

    programs = [folder for folder in binaries() if has_extension(folder, "postgres_fdw")]
    if not programs:
        pytest.skip("NO PostgreSQL with postgres_fdw is installed: the cluster is not tested")
    small = {"shared_buffers": "32MB", "fsync": "off"}
    with Server(programs[0], settings=small) as first, Server(programs[0], settings=small) as second:
        yield first, second


def fail(store):
    with store.transaction():
        store.delete(range(100))
        raise KeyError("something else")


def test_two_servers_are_one_store(servers):
    import psycopg

    for server in servers:
        Store.create(server.url(store="shard"), n_bits=64, radius=2).close()
    address = servers[0].url(store="pictures")
    Store.create(address, n_bits=64, radius=2).close()
    sql = recipe()
    for name, server in zip(("host-a", "host-b"), servers, strict=True):
        sql = sql.replace(f"host '{name}'", f"host '{server.host}'")
    with psycopg.connect(servers[0].url(), autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(sql)
    ids = [*range(150), *(f"name {number}" for number in range(150))]
    with Store.open(address) as store:
        store.put_rows(ids, codes=CODES, payloads=[{"n": number} for number in range(300)])
        counts = []
        for server in servers:
            with psycopg.connect(server.url()) as connection:
                counts.append(connection.execute("SELECT count(*) FROM shard.items").fetchone()[0])
        assert sum(counts) == 300
        assert min(counts) > 75, "the rows are on both servers"
        for query in range(0, 150, 30):
            expected = [query, f"name {query}"] if query < 150 else []
            assert [hit.id for hit in store.search(code=CODES[query])] == expected
        batch = store.search_batch(codes=CODES[:20])
        assert [[hit.id for hit in hits] for hits in batch] == [[number, f"name {number}"] for number in range(20)]
        assert [hit.id for hit in store.nearest(code=CODES[3], k=2)] == [3, "name 3"]
        assert [hit.id for hit in store.search(code=CODES[3], filter={"n": 153})] == ["name 3"]
        store.put([Item(3, code=CODES[7]), Item("new", code=CODES[7])])
        assert store.delete([7]) == 1
        assert [hit.id for hit in store.search(code=CODES[7], radius=0)] == [3, "new"]
        with pytest.raises(KeyError):
            fail(store)
        assert len(store) == store.count({}) == 300
        assert sum(1 for _ in store.scan()) == 300
        assert store.verify().ok
        with Mirror(address) as mirror:
            assert [*mirror.search_batch(CODES[:50])] == [*store.search_batch(codes=CODES[:50])]
