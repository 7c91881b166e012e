"""What is PostgreSQL's own: many writers, mirrors, index-only searches, and a server that refuses."""

import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.errors import (
    ClosedError,
    CorruptFileError,
    DtypeError,
    FileError,
    InputError,
    LockedError,
    MissingExtraError,
    PrivilegeError,
    ReadOnlyError,
    ServerError,
    ShapeError,
    UnsupportedFileError,
)
from hamtarget.query import Asked
from hamtarget.search import Embeddings
from hamtarget.store import Item, Mirror, Store
from hamtarget.store.postgres import connections, statements
from hamtarget.store.postgres.address import is_address, parse_address
from hamtarget.store.postgres.finding import Finder

RNG = np.random.default_rng(17)
CODES = RNG.integers(0, 256, (400, 8), dtype=np.uint8)
CODES[200:] = CODES[:200]
CODES[200:, 5] ^= RNG.integers(0, 256, 200, dtype=np.uint8)


def near(codes, query, radius):
    """(row, distance) by a loop."""
    found = distances(query[None], codes, 8 * codes.shape[1])[0]
    return sorted(((int(d), row) for row, d in enumerate(found) if d <= radius))


@pytest.mark.parametrize(
    ("n_bits", "radius", "substrings"),
    [(64, 2, 3), (64, 2, 2), (64, 2, 1), (64, 5, 2), (32, 3, 1), (32, 1, 1), (128, 3, 2), (1024, 2, 3), (8, 1, 1)],
)
def test_every_split_finds_what_a_loop_finds(postgres_stores, monkeypatch, n_bits, radius, substrings):
    """Substrings of 8 to 512 bits, as integers of both kinds and as bits, with and without flipped ones."""
    codes = RNG.integers(0, 256, (300, n_bits // 8), dtype=np.uint8)
    for place in range(150, 300):
        # Near the first ones, in all of their bits and the highest of each substring as well.
        flips = RNG.choice(n_bits, RNG.integers(0, radius + 3) if n_bits > 8 else 1, replace=False)
        bits = np.unpackbits(codes[place - 150], bitorder="little")
        bits[flips] ^= 1
        codes[place] = np.packbits(bits, bitorder="little")
    with postgres_stores.create(n_bits=n_bits, radius=radius, substrings=substrings) as store:
        store.put_rows(range(300), codes=codes)
        for cost in (0, 10**9):
            # Always by look-ups, and always by reading everything.
            monkeypatch.setattr(statements, "_LOOK_UP_COST", cost)
            for within in {0, 1, radius, min(radius + 1, n_bits - 1)}:
                if cost == 0 and statements.look_ups(n_bits, substrings, within) > 50_000:
                    continue
                hits = store.search_batch(codes=codes[::20], radius=within)
                for number, query in enumerate(codes[::20]):
                    expected = near(codes, query, within)
                    assert [(hit.distance, hit.id) for hit in hits[number]] == expected
                one = store.search(code=codes[20], radius=within)
                assert [(hit.distance, hit.id) for hit in one] == near(codes, codes[20], within)


@pytest.mark.parametrize("substrings", range(1, 8))
def test_shares_leave_no_gap(substrings):
    """However the differing bits are spread over the substrings, one of them has no more than its share."""
    for radius in range(12):
        shares = statements.shares_of(radius, substrings)
        least_unseen = sum(share + 1 for share in shares)
        assert least_unseen == radius + 1


def test_a_search_reads_indexes_only(postgres_stores):
    with postgres_stores.create(n_bits=64, radius=2) as store:
        store.put_rows(range(400), codes=CODES)
        store.compact()
        with store._engine._connections.own() as connection:
            one = statements.one_sql(64, 3, 2, most=10, has_names=False)
            how = {"by_scan": False, "condition": None, "has_names": False}
            connection.execute(f"PREPARE one (bit) AS {one}")
            connection.execute(f"PREPARE batch AS {statements.radius_sql(64, 3, 2, is_sorted=False, **how)}")
            connection.execute(f"PREPARE nearest AS {statements.radius_sql(64, 3, 2, is_sorted=True, **how)}")
            codes = f"'{{{0:064b}}}'"
            for call in (f"one (B'{0:064b}')", f"batch ({codes}, 10)", f"nearest ({codes}, 10)"):
                plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN ANALYZE EXECUTE {call}"))
                assert plan.count("Index Only Scan using items_by_substring_") == 3, plan
                assert plan.count("Heap Fetches: 0") == 3, plan
                assert "Seq Scan" not in plan, plan


def cursors_only(store, monkeypatch):
    """Nothing; searches for one code then go the way of batches."""
    monkeypatch.setattr(store._engine._finder, "near_one", lambda *_: None)


@pytest.mark.parametrize("named", [False, True])
def test_one_code_finds_what_a_batch_finds(postgres_stores, monkeypatch, named):
    """By libpq's own calls and by a cursor; ids below zero, far apart and, if named, strings and huge integers."""
    ids = [-(2**63), -1, *range(2, 396), 2**62 - 1, 2**61, 2**60, 0]
    if named:
        ids[100:300] = [f"item {number}" for number in range(199)] + [2**63 - 1]
    with postgres_stores.create(n_bits=64, radius=2) as store:
        store.put_rows(ids, codes=CODES)
        queries = [*CODES[::7], ~CODES[0]]
        for radius in (None, 0, 1, 2, 3, 9):
            batch = store.search_batch(codes=np.array(queries), radius=radius)
            for query, expected in zip(queries, batch, strict=True):
                assert store.search(code=query, radius=radius) == expected
                assert store.search(code=query, radius=radius, limit=1) == expected[:1]
        quick = [store.search(code=query) for query in queries]
        cursors_only(store, monkeypatch)
        assert [store.search(code=query) for query in queries] == quick
        assert sum(map(len, quick)) > len(queries)
        nearby = [{ids[row] for _, row in near(CODES, query, 2)} for query in queries]
        assert [{hit.id for hit in hits} for hits in quick] == nearby


def test_a_name_is_noticed_by_whichever_search_meets_it_first(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put_rows(range(10), codes=CODES[:10])
        assert [hit.id for hit in store.search(code=CODES[3])] == [3]
        store.put([Item("three", code=CODES[3])])
        assert [hit.id for hit in store.search(code=CODES[3])] == [3, "three"]
    with postgres_stores.open() as store:
        assert store.search_batch(codes=CODES[2:4])[1] == store.search(code=CODES[3])


def test_a_statement_is_prepared_once_for_each_connection(postgres_stores):
    end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'hamtarget'"

    def statements_of(store):
        with store._engine._connections.one() as connection:
            return connection.execute("SELECT name FROM pg_prepared_statements WHERE name ~ '^hamtarget'").fetchall()

    with postgres_stores.create(n_bits=64, radius=2) as store:
        store.put_rows(range(400), codes=CODES)
        for _ in range(2):
            for _ in range(3):
                assert store.search(code=CODES[7])[0].id == 7
            assert store.search(code=CODES[7], radius=1)[0].id == 7
            assert sorted(statements_of(store)) == [("hamtarget_1",), ("hamtarget_2",)]
            postgres_stores.sql(end)


def test_a_search_that_waits_can_be_interrupted(postgres_stores):
    import signal

    import psycopg

    class InterruptedForTest(Exception):
        pass

    def interrupt(*_):
        raise InterruptedForTest

    with postgres_stores.create(n_bits=64) as store:
        store.put_rows(range(10), codes=CODES[:10])
        assert store.search(code=CODES[3])[0].id == 3
        with psycopg.connect(postgres_stores.server.url()) as other:
            other.execute(f'LOCK TABLE "{postgres_stores.schema()}".items')
            before = signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                with pytest.raises(InterruptedForTest):
                    store.search(code=CODES[3])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
        # What was under way is not taken for the answer to another question.
        assert [hit.id for hit in store.search(code=CODES[4])] == [4]


def test_what_is_wrong_is_told_by_a_search_for_one_code(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put_rows(range(10), codes=CODES[:10])
        assert store.search(code=CODES[3])[0].id == 3
        for wrong, error in ((CODES[3, :4], ShapeError), (CODES[3].astype(np.int16), DtypeError)):
            with pytest.raises(error):
                store.search(code=wrong)
        with pytest.raises(InputError, match="limit"):
            store.search(code=CODES[3], limit=-1)
        postgres_stores.sql("ALTER TABLE items RENAME TO others")
        with pytest.raises(CorruptFileError, match="not those of a store"):
            store.search(code=CODES[3])
        postgres_stores.sql("ALTER TABLE others RENAME TO items")
        assert store.search(code=CODES[3])[0].id == 3


def test_a_search_waits_once_for_a_table_that_is_locked(postgres_stores, monkeypatch):
    import psycopg

    monkeypatch.setattr(connections, "_LOCK_SECONDS", 1)
    with postgres_stores.create(n_bits=64) as store:
        store.put_rows(range(10), codes=CODES[:10])
        assert store.search(code=CODES[3])[0].id == 3
        with psycopg.connect(postgres_stores.server.url()) as other, monkeypatch.context() as changed:
            changed.setattr(Finder, "find", lambda *_, **__: pytest.fail("waited again"))
            other.execute(f'LOCK TABLE "{postgres_stores.schema()}".items')
            with pytest.raises(LockedError, match="holds the store for too long"):
                store.search(code=CODES[3])
        assert store.search(code=CODES[3])[0].id == 3


def test_many_threads_search_at_a_time(postgres_stores):
    from concurrent.futures import ThreadPoolExecutor

    with postgres_stores.create(n_bits=64, radius=2) as store:
        store.put_rows(range(400), codes=CODES)
        expected = [*store.search_batch(codes=CODES)]
        with ThreadPoolExecutor(20) as threads:
            assert [*threads.map(lambda code: store.search(code=code), CODES)] == expected


def test_many_write_at_a_time(postgres_stores):
    with postgres_stores.create(n_bits=64) as a, postgres_stores.open() as b:
        for number in range(20):
            writer = (a, b)[number % 2]
            writer.put([Item(f"{number}", code=CODES[number]), Item(number, code=CODES[number])])
        with a.transaction():
            a.put([Item("from a", code=CODES[300])])
        b.put([Item("from b", code=CODES[300])])
        assert a.sequence == b.sequence == 22
        assert len(a) == len(b) == 42
        assert [hit.id for hit in a.search(code=CODES[300], radius=0)] == ["from a", "from b"]
        assert a.verify().ok


def test_a_mirror_follows(postgres_stores):
    with postgres_stores.create(n_bits=64, radius=2) as store:
        store.put_rows([*range(200), *(f"{number}" for number in range(200))], codes=CODES)
        with Mirror(postgres_stores.place(), age=0) as mirror:
            assert len(mirror) == 400
            for number in range(5):
                store.put([Item("new", code=CODES[number]), Item(1000 + number, code=CODES[number])])
                store.delete([number, f"{number + 50}"])
                queries = CODES[number : number + 60]
                for found, expected in ((mirror.search_batch(queries), store.search_batch(codes=queries)),):
                    assert [*found] == [*expected]
                assert mirror.search(CODES[number]) == store.search(code=CODES[number])
                assert [*mirror.nearest_batch(queries[:3], 7)] == [*store.nearest_batch(codes=queries[:3], k=7)]
                assert mirror.sequence == store.sequence
        with pytest.raises(ClosedError, match="closed"):
            mirror.search(CODES[0])
        with pytest.raises(InputError, match="age"):
            Mirror(postgres_stores.place(), age=-1)


def test_a_mirror_reads_everything_again_when_it_must(postgres_stores, monkeypatch):
    monkeypatch.setattr("hamtarget.store.postgres.engine._KEPT_CHANGES", 1)
    with postgres_stores.create(n_bits=64) as store, Mirror(postgres_stores.place(), age=3600) as mirror:
        store.put_rows(range(100), codes=CODES[:100])
        assert len(mirror) == 0, "it has not asked yet"
        mirror.refresh()
        assert len(mirror) == 100
        store.delete(range(50))
        for number in range(3):
            store.put([Item("late", code=CODES[number])])
        store.compact()
        assert postgres_stores.sql("SELECT count(*) FROM deleted") == [(0,)]
        assert mirror.refresh() == store.sequence
        assert len(mirror) == len(store) == 51
        # More has changed than is worth replaying.
        store.put_rows(range(5000), codes=np.tile(CODES, (13, 1))[:5000])
        mirror.refresh()
        assert len(mirror) == len(store)
        assert [*mirror.search_batch(CODES[:50])] == [*store.search_batch(codes=CODES[:50])]


def test_embeddings_go_to_the_mirror(postgres_stores):
    vectors = RNG.normal(size=(400, 5)).astype(np.float32)
    with postgres_stores.create(n_bits=64, radius=3, embeddings=Embeddings(5)) as store:
        store.put_rows(range(400), codes=CODES, embeddings=vectors)
        with Mirror(postgres_stores.place()) as mirror:
            found = mirror.search_batch(Asked(CODES[:20], embeddings=vectors[:20]), rerank=2)
            assert [*found] == [*store.search_batch(Asked(CODES[:20], embeddings=vectors[:20]), rerank=2)]


def test_a_store_of_another_version_is_refused(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put([Item("a", code=CODES[0])])
    postgres_stores.sql("UPDATE schema_version SET version = 2")
    for read_only in (True, False):
        with pytest.raises(UnsupportedFileError, match="has version 2; this hamtarget reads version 1"):
            postgres_stores.open(read_only=read_only)
    with pytest.raises(UnsupportedFileError, match="has version 2"):
        Mirror(postgres_stores.place())
    postgres_stores.sql("UPDATE schema_version SET version = 1")
    with postgres_stores.open() as store:
        assert "a" in store


def test_what_is_there_is_left_alone(postgres_stores):
    with pytest.raises(FileError, match="no store"):
        postgres_stores.open()
    postgres_stores.create(n_bits=64).close()
    with pytest.raises(FileError, match="not an empty schema"):
        postgres_stores.create(n_bits=64)
    postgres_stores.sql(f'CREATE SCHEMA "{postgres_stores.schema("other")}"')
    with pytest.raises(FileError, match="no store"):
        postgres_stores.open("other")
    postgres_stores.create("other", n_bits=64).close()


def test_a_user_without_privileges_is_told(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put([Item("a", code=CODES[0])])
    postgres_stores.sql(
        "DROP ROLE IF EXISTS guest",
        "CREATE ROLE guest LOGIN",
        f'GRANT USAGE ON SCHEMA "{postgres_stores.schema()}" TO guest',
    )
    address = postgres_stores.server.url(user="guest", store=postgres_stores.schema().replace(" ", "%20"))
    with pytest.raises(PrivilegeError, match="GRANT"):
        Store.open(address)
    postgres_stores.sql(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{postgres_stores.schema()}" TO guest')
    with Store.open(address) as store:
        assert [hit.id for hit in store.search(code=CODES[0])] == ["a"]
        with pytest.raises(PrivilegeError, match="permission denied"):
            store.put([Item("b", code=CODES[0])])
    with pytest.raises(PrivilegeError, match="permission denied"):
        Store.create(postgres_stores.server.url(user="guest", store="guests"), n_bits=64)
    with Store.open(postgres_stores.place()) as store:
        assert [item.id for item in store.scan()] == ["a"]
    postgres_stores.sql("DROP OWNED BY guest", "DROP ROLE guest")


def test_a_server_that_is_not_there_is_told(tmp_path, postgres_stores):
    with pytest.raises(ServerError, match="see whether the server runs"):
        Store.open(f"postgresql://me:secret@/db?host={tmp_path}")
    with pytest.raises(FileError, match="make the database first"):
        Store.open(postgres_stores.server.url("nowhere"))


def test_a_read_only_server_is_told(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put([Item("a", code=CODES[0])])
    postgres_stores.sql("ALTER ROLE hamtarget IN DATABASE postgres SET default_transaction_read_only = on")
    try:
        with postgres_stores.open() as store:
            assert "a" in store
            with pytest.raises(ReadOnlyError, match="only reads"):
                store.put([Item("b", code=CODES[0])])
    finally:
        postgres_stores.sql(
            "SET default_transaction_read_only = off",
            "ALTER ROLE hamtarget IN DATABASE postgres RESET default_transaction_read_only",
        )


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        with pytest.raises(ShapeError, match="4 bytes"):
            store.put([Item(1, code=CODES[0]), Item(2, code=CODES[0, :4])])
        with pytest.raises(ShapeError, match="16 bytes"):
            store.put_rows([1], codes=np.zeros((1, 16), dtype=np.uint8))
        with pytest.raises(ShapeError, match="4 bytes"):
            store.search(code=CODES[0, :4])
        assert len(store) == 0
        assert postgres_stores.sql("SELECT count(*) FROM items") == [(0,)]
        name = "'); DROP TABLE items; --"
        store.put([Item(name, code=CODES[0], payload={name: name})])
        assert [hit.id for hit in store.search(code=CODES[0], filter={name: name})] == [name]


def test_another_width_than_the_settings_say_is_noticed(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put_rows(range(10), codes=CODES[:10])
    postgres_stores.sql(
        "ALTER TABLE items DROP COLUMN substring_0, DROP COLUMN substring_1, DROP COLUMN substring_2",
        "ALTER TABLE items ALTER COLUMN code TYPE bit(32) USING code::bit(32)",
    )
    with postgres_stores.open() as store:
        with pytest.raises(CorruptFileError, match="another length"):
            store.get([1])
        with pytest.raises(CorruptFileError, match="not those of a store"):
            store.search(code=CODES[0])
        with pytest.raises(CorruptFileError, match="not those of a store"):
            store.put([Item(99, code=CODES[0])])
    with pytest.raises(CorruptFileError, match="another length"):
        Mirror(postgres_stores.place())


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("UPDATE state SET n_items = 7", "the state says 7"),
        ("DELETE FROM names", "has no id"),
        ("DELETE FROM items WHERE row >= 2::bigint ^ 62", "an id and nothing else"),
        ("UPDATE items SET fields = '{}' WHERE row = 3", "row 3 has fields"),
        ("UPDATE items SET changed = 99 WHERE row = 3", "row 3 is of a change"),
        ("UPDATE state SET next_row = 2::numeric ^ 62", "not given yet"),
    ],
)
def test_verify_finds_what_others_have_done(postgres_stores, damage, what):
    with postgres_stores.create(n_bits=64) as store:
        store.put_rows([*range(10), "a"], codes=CODES[:11], payloads=[{"n": 1}] * 11)
        assert store.verify().ok
        postgres_stores.sql(damage)
        report = store.verify()
        assert not report.ok
        assert any(what in problem for problem in report.problems), report.problems


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
def test_a_lost_encoder_is_an_error_when_it_is_needed(postgres_stores):
    pytest.importorskip("torch")
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

    vectors = RNG.normal(size=(40, 6)).astype(np.float32)
    training = TrainingOptions(steps=1, batch_size=16)
    encoder = HashEncoder(16, network=NetworkOptions(width=8), training=training).fit(vectors, np.arange(40) // 10)
    postgres_stores.create(encoder=encoder).close()
    postgres_stores.sql("UPDATE encoder SET name = '../' || name")
    with postgres_stores.open() as store, pytest.raises(CorruptFileError, match="encoder has a file"):
        store.search(vectors[0])
    postgres_stores.sql("DELETE FROM encoder")
    with postgres_stores.open() as store, pytest.raises(FileError, match="lost its encoder"):
        store.search(vectors[0])


def test_addresses_are_shown_without_their_password():
    address = parse_address("postgresql://me:secret@host:1/db?store=a%20b&sslmode=require&password=secret")
    assert (address.schema, str(address)) == ("a b", "postgresql://me@host:1/db?sslmode=require&store=a%20b")
    assert "secret" in address.conninfo
    assert "store" not in address.conninfo
    assert "secret" not in repr(address)
    assert parse_address("postgres:///db").schema == "hamtarget"
    assert is_address("postgresql://")
    assert not is_address("pictures")
    for name in ("", "pg_catalog", "x" * 64):
        with pytest.raises(InputError, match="name of a schema"):
            parse_address(f"postgresql:///db?store={name}")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"hamtarget\[postgres\]"):
        Store.open("postgresql:///db")


def test_a_reader_is_told_by_the_server_as_well(postgres_stores):
    postgres_stores.create(n_bits=64).close()
    with postgres_stores.open(read_only=True) as store:
        store._engine.read_only = False
        with pytest.raises(ReadOnlyError, match="read_only=True"):
            store.put([Item(1, code=CODES[0])])


def test_connections_that_the_server_ended_are_replaced(postgres_stores):
    end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'hamtarget'"
    with postgres_stores.create(n_bits=64) as store, Mirror(postgres_stores.place(), age=0) as mirror:
        for number in range(3):
            assert postgres_stores.sql(end)[0][0] >= 2
            store.put([Item(number, code=CODES[number])])
            assert postgres_stores.sql(end)[0][0] >= 1
            assert [hit.id for hit in store.search(code=CODES[number])] == [number]
            assert [hit.id for hit in mirror.search(CODES[number])] == [number]


def test_a_transaction_whose_connection_ends_changes_nothing(postgres_stores):
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hamtarget'"

    def change(store):
        with store.transaction():
            store.put([Item("a", code=CODES[0])])
            postgres_stores.sql(end)
            store.put([Item("b", code=CODES[0])])

    with postgres_stores.create(n_bits=64) as store:
        with pytest.raises(ServerError, match="try again"):
            change(store)
        assert len(store) == 0
        assert store.sequence == 0
        store.put([Item("c", code=CODES[0])])
        assert [item.id for item in store.scan()] == ["c"]


def test_a_forked_process_opens_its_own(postgres_stores):
    import os

    with postgres_stores.create(n_bits=64) as store, Mirror(postgres_stores.place()) as mirror:
        store.put([Item(1, code=CODES[0])])
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: store.search(code=CODES[0]), lambda: mirror.search(CODES[0])):
                try:
                    call()
                except ClosedError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert 1 in store
