"""A repaired store holds what was whole in the damaged one and no row that was not there; it says what is missing."""

import json
import os
import random
import shutil
import sqlite3

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, FileError
from hamtarget.search import Embeddings
from hamtarget.store import Store

PAGE = 4096
FRAME = PAGE + 24
RNG = np.random.default_rng(8)
N_BASE = 1500
CODES = RNG.integers(0, 256, (4000, 8), dtype=np.uint8)
VECTORS = RNG.normal(size=(4000, 3)).astype(np.float32)
# Rows of a page of the smallest rows, and names of a page.
MOST_LOST_BY_A_PAGE = 150


def any_id(number):
    return number if number % 3 else f"name {number}"


def text(number):
    """Some are longer than a page."""
    return "x" * (number % 7 * (900 if number % 50 == 0 else 9))


def put(store, numbers, version):
    numbers = list(numbers)
    store.put_rows(
        [any_id(number) for number in numbers],
        codes=CODES[numbers],
        embeddings=VECTORS[numbers],
        payloads=[
            {"n": number, "v": version, "text": "x" * (number % 7 * (900 if number % 50 == 0 else 9))}
            for number in numbers
        ],
    )


def content_of(store):
    return {item.id: (item.code.tobytes(), item.embedding.tobytes(), json.dumps(item.payload)) for item in store.scan()}


def content(path):
    with Store.open(path, read_only=True) as store:
        report = store.verify()
        assert report.ok, report.problems
        return content_of(store)


class Made:
    """A store whose writer died, and what it held after each change."""

    def __init__(self, folder):
        self.path = folder / "crashed"
        self.states = {}
        with Store.create(folder / "store", n_bits=64, embeddings=Embeddings(3)) as store:
            self.change(store, lambda: put(store, range(N_BASE), 0))
            # Free pages with rows that were deleted; their traces go when the index is saved.
            self.change(store, lambda: store.delete([any_id(number) for number in range(200, 420)]))
            store._engine.save()
            store._engine._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            for number in range(12):
                self.change(
                    store, lambda number=number: put(store, range(1600 + 9 * number, 1612 + 9 * number), number)
                )
                self.change(store, lambda number=number: put(store, range(50 * number, 50 * number + 3), number))
                self.change(store, lambda number=number: store.delete([any_id(1000 + number), any_id(5)]))
            shutil.copytree(folder / "store", self.path)
            self.final = self.states[store.sequence]

    def change(self, store, make):
        make()
        self.states[store.sequence] = content_of(store)

    def copy(self, tmp_path):
        return shutil.copytree(self.path, tmp_path / "damaged")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made"))


def repaired(path, tmp_path):
    """Return the report and the content of the repaired store; the damaged one must not be touched."""
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    shutil.rmtree(tmp_path / "repaired", ignore_errors=True)
    report = Store.repair(path, tmp_path / "repaired")
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    found = content(tmp_path / "repaired")
    assert report.items == len(found)
    return report, found


def check_true(found, made):
    """Check that every row is as it was after one and the same change."""
    assert any(found.items() <= state.items() for state in reversed(made.states.values())), "a wrong row came back"


def flip(file, position):
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << position % 8
    file.write_bytes(content)


def test_a_whole_store_comes_back_whole(made, tmp_path):
    told = []
    report, found = repaired(made.copy(tmp_path), tmp_path)
    assert found == made.final
    assert report.ok
    assert (report.n_bad_rows, report.n_missing, report.n_lost_changes) == (0, 0, 0)
    Store.repair(made.path, tmp_path / "again", progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    # It goes on where the damaged one was.
    with Store.open(tmp_path / "again") as store:
        assert store.sequence == max(made.states)
        put(store, [3000], 0)
        assert len(store) == len(made.final) + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_one_bit_of_the_database_costs_at_most_a_page(made, tmp_path, seed):
    path = made.copy(tmp_path)
    rng = random.Random(seed)
    flip(path / "store.db", rng.randrange(PAGE, (path / "store.db").stat().st_size))
    report, found = repaired(path, tmp_path)
    assert found.items() <= made.final.items()
    assert len(found) >= len(made.final) - MOST_LOST_BY_A_PAGE
    if len(found) < len(made.final):
        assert not report.ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_one_bit_of_the_log_costs_the_changes_behind_it_and_they_are_counted(made, tmp_path, seed):
    path = made.copy(tmp_path)
    log = path / "store.db-wal"
    rng = random.Random(seed)
    position = rng.randrange(log.stat().st_size)
    flip(log, position)
    report, found = repaired(path, tmp_path)
    assert report.n_lost_changes > 0
    assert not report.ok
    assert found == made.states[max(made.states) - report.n_lost_changes]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_much_damage_never_makes_a_wrong_row(made, tmp_path, seed):
    path = made.copy(tmp_path)
    rng = random.Random(seed)
    for file in (path / "store.db", path / "store.db-wal"):
        whole = bytearray(file.read_bytes())
        kind = rng.choice(["bits", "page", "cut", "none", "noise"])
        if kind == "bits":
            for _ in range(rng.choice([3, 30, 300])):
                position = rng.randrange(len(whole))
                whole[position] ^= 1 << rng.randrange(8)
        elif kind == "page":
            for _ in range(rng.randrange(1, 5)):
                start = rng.randrange(1, len(whole) // PAGE) * PAGE
                whole[start : start + PAGE] = bytes(PAGE)
        elif kind == "cut":
            del whole[rng.randrange(len(whole)) :]
        elif kind == "noise":
            start = rng.randrange(len(whole))
            whole[start : start + 5000] = rng.randbytes(len(whole[start : start + 5000]))
        file.write_bytes(whole)
    try:
        report, found = repaired(path, tmp_path)
    except CorruptFileError:
        return
    check_true(found, made)
    if len(found) < len(made.final):
        assert not report.ok


def test_a_lost_page_costs_its_own_rows_and_they_are_counted(made, tmp_path):
    """Pages of the database, one after another; those of the log stand in for some of them."""
    path = made.copy(tmp_path)
    whole = (path / "store.db").read_bytes()
    n_rows = []
    # The second page has the settings, of which there is a copy in the saved index.
    for start in range(2 * PAGE, len(whole), 7 * PAGE):
        (path / "store.db").write_bytes(whole[:start] + bytes(PAGE) + whole[start + PAGE :])
        report, found = repaired(path, tmp_path)
        assert found.items() <= made.final.items()
        n_rows.append(len(made.final) - len(found))
        assert report.n_bad_rows == report.n_missing == n_rows[-1] <= MOST_LOST_BY_A_PAGE
        assert report.ok == (n_rows[-1] == 0)
    assert max(n_rows) > 10


@pytest.fixture(scope="module")
def scattered(tmp_path_factory):
    """A store whose ids are far from each other, and of which nothing is in the log."""
    path = tmp_path_factory.mktemp("scattered") / "store"
    ids = np.random.default_rng(4).integers(0, 2**62, 4000).tolist()
    ids[::5] = [f"name {id}" for id in ids[::5]]
    with Store.create(path, n_bits=64) as store:
        store.put_rows(ids, codes=CODES, payloads=[{"t": "x" * (row % 90)} for row in range(4000)])
    return path


@pytest.mark.parametrize("seed", range(8))
def test_every_row_comes_back_that_sqlite_reads_alone(scattered, tmp_path, seed):
    with sqlite3.connect(scattered / "store.db") as connection:
        numbers = [row for (row,) in connection.execute("SELECT row FROM items")]
        names = dict(connection.execute("SELECT row, id FROM names"))
    connection.close()
    path = shutil.copytree(scattered, tmp_path / "damaged")
    damaged = bytearray((path / "store.db").read_bytes())
    rng = random.Random(seed)
    for page in rng.sample(range(12, len(damaged) // PAGE), 5 * (seed + 1)):
        damaged[page * PAGE : (page + 1) * PAGE] = rng.choice([bytes(PAGE), rng.randbytes(PAGE)])
    (path / "store.db").write_bytes(damaged)
    connection = sqlite3.connect(f"file:{path / 'store.db'}?mode=ro", uri=True)
    connection.execute("PRAGMA cell_size_check = OFF")

    def is_read(sql, row):
        try:
            return connection.execute(sql, (row,)).fetchone() is not None
        except sqlite3.DatabaseError:
            return False

    expected = {
        names.get(row, row)
        for row in numbers
        if is_read("SELECT * FROM items WHERE row = ?", row)
        and (row not in names or is_read("SELECT * FROM names WHERE row = ?", row))
    }
    connection.close()
    report = Store.repair(path, tmp_path / "repaired")
    assert report.n_missing == 4000 - len(expected) > 0
    with Store.open(tmp_path / "repaired", read_only=True) as store:
        assert {item.id for item in store.scan()} == expected


def test_rows_of_which_the_index_of_the_database_is_lost_come_back(made, tmp_path):
    path = made.copy(tmp_path)
    (path / "store.db-wal").unlink()
    with sqlite3.connect(path / "store.db") as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'index'"))
    connection.close()
    damaged = bytearray((path / "store.db").read_bytes())
    for name in ("items_by_change", "sqlite_autoindex_names_1"):
        damaged[(roots[name] - 1) * PAGE : roots[name] * PAGE] = bytes(PAGE)
    (path / "store.db").write_bytes(damaged)
    report, found = repaired(path, tmp_path)
    assert found == made.states[2]
    assert report.n_bad_rows == 0


def test_a_damaged_page_that_leads_to_others_costs_the_rows_below_it(tmp_path):
    """Each of the first pages of a tree of three levels that lead to others is lost once."""
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(range(6000), codes=CODES[np.arange(6000) % 4000], payloads=[{"t": "x" * 600}] * 6000)
    report = Store.repair(tmp_path / "store", tmp_path / "whole")
    assert report.ok
    assert report.items == 6000
    file = tmp_path / "store" / "store.db"
    whole = file.read_bytes()
    inner = [start for start in range(PAGE, len(whole), PAGE) if whole[start] == 5]
    assert len(inner) >= 3
    n_items = []
    for start in inner[:3]:
        damaged = bytearray(whole)
        damaged[start] = 99
        file.write_bytes(damaged)
        shutil.rmtree(tmp_path / "repaired", ignore_errors=True)
        report = Store.repair(tmp_path / "store", tmp_path / "repaired")
        assert report.n_missing == report.n_bad_rows == 6000 - report.items > 0
        assert not report.ok
        n_items.append(report.items)
    # One of them leads to all rows, another to a part of them.
    assert min(n_items) == 0
    assert max(n_items) > 2000


def test_without_the_first_page_nothing_comes_back(made, tmp_path):
    """It has the places of all tables."""
    path = made.copy(tmp_path)
    (path / "store.db-wal").unlink()
    damaged = bytearray((path / "store.db").read_bytes())
    damaged[:PAGE] = bytes(PAGE)
    (path / "store.db").write_bytes(damaged)
    with pytest.raises(CorruptFileError, match=r"SQLite cannot read store\.db .*; restore the store from a backup"):
        Store.repair(path, tmp_path / "repaired")
    assert not (tmp_path / "repaired").exists()


def test_a_table_that_is_described_wrongly_is_left_out_and_that_is_told(made, tmp_path):
    path = made.copy(tmp_path)
    (path / "store.db-wal").unlink()
    damaged = (path / "store.db").read_bytes().replace(b"CREATE TABLE names", b"CREATE TABLE nbmes")
    (path / "store.db").write_bytes(damaged)
    report, found = repaired(path, tmp_path)
    assert found == {id: item for id, item in made.states[2].items() if isinstance(id, int)}
    told = "\n".join(report.problems)
    assert "the description of table names is damaged" in told
    assert "items were left out, because their ids" in told


def test_settings_come_from_the_index_if_need_be(made, tmp_path):
    path = made.copy(tmp_path)
    damaged = bytearray((path / "store.db").read_bytes())
    damaged[damaged.index(b"durability")] ^= 1
    (path / "store.db").write_bytes(damaged)
    report, found = repaired(path, tmp_path)
    assert found == made.final
    assert "settings" in report.problems[0]
    (index,) = path.glob("index-*.ham")
    index.unlink()
    with pytest.raises(CorruptFileError, match="neither its settings nor its saved index"):
        Store.repair(path, tmp_path / "another")
    assert not (tmp_path / "another").exists()


def test_a_cut_database_keeps_what_is_before_the_cut_and_names_what_is_not(made, tmp_path):
    path = made.copy(tmp_path)
    os.truncate(path / "store.db", (path / "store.db").stat().st_size // 2)
    report, found = repaired(path, tmp_path)
    assert found.items() < made.final.items()
    assert len(found) > 300
    lost = set(made.final) - set(found)
    assert report.n_missing > 0
    assert set(report.missing) <= lost
    assert any("did not come back" in problem for problem in report.problems)


def test_rows_and_ids_that_lost_each_other_are_counted(made, tmp_path):
    path = made.copy(tmp_path)
    with sqlite3.connect(path / "store.db") as connection:
        connection.execute("DELETE FROM names WHERE id = 'name 600'")
        connection.execute("DELETE FROM items WHERE row = (SELECT row FROM names WHERE id = 'name 603')")
        connection.execute("UPDATE items SET payload = '{}' WHERE row = 601")
    connection.close()
    report, found = repaired(path, tmp_path)
    assert set(made.final) - set(found) == {"name 600", "name 603", 601}
    assert {"name 603", 601} <= set(report.missing)
    assert report.n_missing == 3
    told = "\n".join(report.problems)
    assert "1 rows are damaged; first: 601" in told
    assert "1 items were left out, because their ids" in told
    assert "1 ids have no item any more" in told


def test_deleted_rows_stay_deleted(made, tmp_path):
    """Free pages still hold them."""
    path = made.copy(tmp_path)
    (path / "store.db-wal").unlink()
    report, found = repaired(path, tmp_path)
    assert found == made.states[2]
    assert report.n_lost_changes == max(made.states) - 2
    assert not report.ok


def test_what_was_rolled_back_does_not_come_back(tmp_path):
    """A large transaction that failed leaves pages in the log, behind those of later changes."""
    states = []
    with Store.create(tmp_path / "store", n_bits=64, embeddings=Embeddings(3)) as store:
        put(store, range(300), 0)
        states.append(content_of(store))
        store._engine._connection.execute("PRAGMA cache_size = 10")

        def fail():
            with store.transaction():
                put(store, range(100, 1500), 99)
                store.delete([any_id(number) for number in range(50)])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fail()
        size = (tmp_path / "store" / "store.db-wal").stat().st_size
        for number in range(4):
            put(store, range(20 * number, 20 * number + 5), number + 1)
            states.append(content_of(store))
        shutil.copytree(tmp_path / "store", tmp_path / "crashed")
    log = tmp_path / "crashed" / "store.db-wal"
    # The later changes lie in front of what was rolled back.
    assert log.stat().st_size == size
    whole = log.read_bytes()
    for frame in range(0, len(whole) // FRAME, 9):
        for position in (10, 300):
            flip(log, 32 + frame * FRAME + position)
            _, found = repaired(tmp_path / "crashed", tmp_path)
            assert any(found.items() <= state.items() for state in states)
            log.write_bytes(whole)


def test_without_the_counter_a_loss_is_not_counted_and_that_is_told(made, tmp_path):
    path = made.copy(tmp_path)
    log = path / "store.db-wal"
    flip(log, 32 + 3 * FRAME + 100)
    (path / "changes").unlink()
    report, found = repaired(path, tmp_path)
    assert found in made.states.values()
    assert report.n_lost_changes == 0
    assert any("the file changes is missing" in problem for problem in report.problems)


def test_an_encoder_that_is_gone_is_told(tmp_path):
    from pathlib import Path

    import hamtarget
    from hamtarget.encoders import open_encoder

    demo = Path(hamtarget.__file__).parent / "serve" / "demo_encoder"
    with Store.create(tmp_path / "store", encoder=open_encoder(demo)) as store:
        store.put_rows([1], inputs=np.zeros((1, 28, 28), dtype=np.uint8))
    assert Store.repair(tmp_path / "store", tmp_path / "whole").ok
    with Store.open(tmp_path / "whole") as store:
        assert store.search(np.zeros((28, 28), dtype=np.uint8))[0].id == 1
    shutil.rmtree(tmp_path / "store" / "encoder")
    report = Store.repair(tmp_path / "store", tmp_path / "without")
    assert "encoder" in report.problems[0]
    with Store.open(tmp_path / "without") as store:
        assert not store.has_encoder
        assert len(store) == 1
        assert store.verify().ok


def test_nothing_is_overwritten(made, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("x")
    with pytest.raises(FileError, match="not an empty folder"):
        Store.repair(made.path, tmp_path / "there")
    with pytest.raises(FileError, match="is no store"):
        Store.repair(tmp_path / "there", tmp_path / "new")
