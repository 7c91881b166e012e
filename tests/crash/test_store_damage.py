"""A store that something has happened to says so, or rebuilds what can be rebuilt; it never answers wrongly."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from hamtarget.errors import (
    CorruptFileError,
    HamtargetError,
    LostChangesWarning,
    ReadOnlyError,
    UnsupportedFileError,
)
from hamtarget.search import Embeddings, MultiIndex
from hamtarget.store import Item, Store

N_ITEMS = 400
IDS = [*range(200), *(f"name {number}" for number in range(200))]
RNG = np.random.default_rng(9)
CODES = RNG.integers(0, 256, (N_ITEMS, 8), dtype=np.uint8)
VECTORS = RNG.normal(size=(N_ITEMS, 3)).astype(np.float32)
PAYLOADS = [{"n": number, "text": f"text {number}" * 5} for number in range(N_ITEMS)]


def make_store(path):
    store = Store.create(path, n_bits=64, radius=2, embeddings=Embeddings(3))
    store.put_rows(IDS[:-5], codes=CODES[:-5], embeddings=VECTORS[:-5], payloads=PAYLOADS[:-5])
    store.compact()
    store.put_rows(IDS[-5:], codes=CODES[-5:], embeddings=VECTORS[-5:], payloads=PAYLOADS[-5:])
    store.put([Item("gone", code=CODES[-1], embedding=VECTORS[0])])
    store.delete(["gone"])
    return store


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store that was closed, with an index that is saved."""
    path = tmp_path_factory.mktemp("template") / "store"
    make_store(path).close()
    return path


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A store whose writer died: its saved index is older than the rows, and the log is still there."""
    path = tmp_path_factory.mktemp("crashed")
    store = make_store(path / "store")
    shutil.copytree(path / "store", path / "copy")
    store.close()
    return path / "copy"


def copy_of(store, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(store, path)
    return path


def index_file(path):
    (file,) = path.glob("index-*.ham")
    return file


def check_whole(path, **how):
    """Nothing, if the store holds and finds everything, and nothing else."""
    with Store.open(path, **how) as store:
        assert [item.id for item in store.scan()] == IDS
        for place, item in enumerate(store.get(IDS)):
            check_item(item, place)
        assert store.search_batch(codes=CODES, radius=0).ids.tolist() == IDS
        assert store.verify().ok


def check_item(item, place):
    assert item.id == IDS[place]
    np.testing.assert_array_equal(item.code, CODES[place])
    np.testing.assert_array_equal(item.embedding, VECTORS[place])
    assert item.payload == PAYLOADS[place]


def flip(file, position):
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << position % 8
    file.write_bytes(content)


@pytest.mark.parametrize("kind", ["template", "crashed"])
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda file: None,
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
        lambda file: os.truncate(file, file.stat().st_size // 2),
        lambda file: flip(file, 60),
        lambda file: flip(file, file.stat().st_size // 2),
    ],
    ids=["whole", "missing", "empty", "half", "header", "bit"],
)
def test_an_index_file_that_is_not_what_it_was_is_made_anew(tmp_path, request, kind, read_only, damage):
    path = copy_of(request.getfixturevalue(kind), tmp_path)
    damage(index_file(path))
    with Store.open(path, read_only=read_only) as store:
        assert store.search_batch(codes=CODES, radius=0).ids.tolist() == IDS
        assert len(store) == N_ITEMS
    check_whole(path)


def test_where_no_index_can_be_saved_the_store_works_without(template, tmp_path):
    path = copy_of(template, tmp_path)
    file = index_file(path)
    file.unlink()
    file.mkdir()
    for _ in range(2):
        with Store.open(path) as store:
            assert store.search_batch(codes=CODES, radius=0).ids.tolist() == IDS
            (problem,) = store.verify().problems
            assert "saved index" in problem


def test_the_whole_index_of_another_store_is_not_taken(template, tmp_path):
    path = copy_of(template, tmp_path)
    file = index_file(path)
    other = MultiIndex(64, 2, embeddings=Embeddings(3))
    other.add(np.arange(N_ITEMS), CODES[::-1].copy(), VECTORS)
    file.unlink()
    other.save(file)
    check_whole(path)


def test_an_older_database_with_a_newer_index_is_what_the_database_says(tmp_path):
    """As when someone brings back a copy of the database alone, and accepts what that loses."""
    store = make_store(tmp_path / "store")
    store.close()
    old = (tmp_path / "store" / "store.db").read_bytes()
    with Store.open(tmp_path / "store") as store:
        store.delete(IDS[:50])
        store.put([Item("new", code=CODES[0], embedding=VECTORS[0])])
    (tmp_path / "store" / "store.db").write_bytes(old)
    with pytest.warns(LostChangesWarning, match="last 2 changes are missing"):
        Store.open(tmp_path / "store", accept_loss=True).close()
    check_whole(tmp_path / "store")


def test_progress_is_told_when_the_index_is_built(template, tmp_path):
    path = copy_of(template, tmp_path)
    told = []
    Store.open(path, progress=lambda done, total: told.append((done, total))).close()
    assert told == []
    index_file(path).unlink()
    Store.open(path, progress=lambda done, total: told.append((done, total))).close()
    assert told[-1] == (N_ITEMS, N_ITEMS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hamtarget.errors.LostChangesWarning")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["template", "crashed"])
def test_a_damaged_page_gives_an_error_or_the_truth(tmp_path, request, kind, seed):
    """Bits of the database or its log are flipped: whatever is answered is right, or `verify` says what is wrong."""
    path = copy_of(request.getfixturevalue(kind), tmp_path)
    rng = random.Random(seed)
    files = [path / "store.db", *path.glob("store.db-wal")]
    file = rng.choice(files)
    for _ in range(rng.choice([1, 3, 50])):
        flip(file, rng.randrange(file.stat().st_size))
    if seed % 2:
        index_file(path).unlink()
    wrong = []
    report = None
    try:
        with Store.open(path, read_only=seed % 3 == 0) as store:
            report = store.verify()
            for place, id in enumerate(IDS):
                check_one(store, place, id, wrong)
            try:
                if [item.id for item in store.scan()] != IDS:
                    wrong.append("scan")
            except HamtargetError:
                pass
    except HamtargetError:
        return
    # What SQLite does not check when it reads, such as the order of an index of ids, it checks in `verify`; that a
    # damaged log has ended early, too.
    assert not wrong or not report.ok


def check_one(store, place, id, wrong):
    try:
        (item,) = store.get([id])
        hits = store.search(code=CODES[place], radius=0)
    except HamtargetError:
        return
    try:
        check_item(item, place)
        assert [hit.id for hit in hits] == [id]
    except (AssertionError, AttributeError):
        wrong.append(place)


@pytest.mark.parametrize("column", ["code", "payload", "embedding", "changed", "checksum"])
def test_a_changed_row_is_noticed(template, tmp_path, column):
    path = copy_of(template, tmp_path)
    with sqlite3.connect(path / "store.db") as connection:
        old = connection.execute(f"SELECT {column} FROM items WHERE row = 7").fetchone()[0]
        new = old + 1 if isinstance(old, int) else old[:-1] + (b"\1" if isinstance(old, bytes) else "]")
        connection.execute(f"UPDATE items SET {column} = ? WHERE row = 7", (new,))
    connection.close()
    with Store.open(path) as store:
        for call in (lambda: store.get([7]), lambda: list(store.scan())):
            with pytest.raises(CorruptFileError, match="row 7 .* damaged"):
                call()
        report = store.verify()
        assert not report.ok
        assert any("row 7" in problem for problem in report.problems)
        check_item(store.get([8])[0], 8)
    index_file(path).unlink()
    with pytest.raises(CorruptFileError, match="row 7 .* damaged"):
        Store.open(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE names SET id = 'other' WHERE id = 'name 3'",
        "UPDATE names SET checksum = checksum + 1 WHERE id = 'name 3'",
        "DELETE FROM names WHERE id = 'name 3'",
        "DELETE FROM items WHERE row = 4611686018427387907",
        "INSERT INTO names VALUES (4611686018427389000, 'nothing', 0)",
    ],
)
def test_tables_that_do_not_fit_each_other_are_noticed(template, tmp_path, statement):
    path = copy_of(template, tmp_path)
    with sqlite3.connect(path / "store.db") as connection:
        connection.execute(statement)
    connection.close()
    with Store.open(path) as store:
        report = store.verify()
        assert not report.ok
        for place, id in enumerate(IDS):
            if id != "name 3":
                check_item(store.get([id])[0], place)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE state SET sequence = sequence + 1",
        "UPDATE state SET next_row = next_row - 1",
        "UPDATE settings SET value = '3' WHERE name = 'radius'",
        "DELETE FROM settings WHERE name = 'n_bits'",
        "DELETE FROM state",
        "DROP TABLE items",
    ],
)
def test_a_store_that_does_not_know_itself_is_not_opened(template, tmp_path, statement):
    path = copy_of(template, tmp_path)
    with sqlite3.connect(path / "store.db") as connection:
        connection.execute(statement)
    connection.close()
    for read_only in (True, False):
        with pytest.raises(CorruptFileError):
            Store.open(path, read_only=read_only)


@pytest.mark.parametrize("version", [0, 2, 5])
def test_a_store_of_another_version_is_not_touched(template, tmp_path, version):
    path = copy_of(template, tmp_path)
    with sqlite3.connect(path / "store.db") as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = (path / "store.db").read_bytes()
    with pytest.raises(UnsupportedFileError, match=f"version {version}; this hamtarget reads version 1"):
        Store.open(path)
    assert (path / "store.db").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + bytes(4080), b"something else" * 1000])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "store.db").write_bytes(content)
    for read_only in (True, False):
        with pytest.raises(CorruptFileError):
            Store.open(tmp_path, read_only=read_only)
    assert (tmp_path / "store.db").read_bytes() == content


def test_another_database_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("CREATE TABLE items (x)")
    connection.close()
    with pytest.raises(CorruptFileError, match="not a store's"):
        Store.open(tmp_path)


READ_ONLY = """
import sys
from hamtarget.errors import FileError, ReadOnlyError
from hamtarget.store import Store
try:
    Store.open(sys.argv[1])
except ReadOnlyError as error:
    print("refused:", error)
try:
    with Store.open(sys.argv[1], read_only=True) as store:
        print("items:", len(store), store.verify().ok)
except FileError as error:
    print("not read:", error)
"""


@pytest.mark.parametrize(
    ("kind", "lost", "expected"),
    [
        ("template", None, f"items: {N_ITEMS} True"),
        ("template", "changes", f"items: {N_ITEMS} True"),
        ("crashed", None, f"items: {N_ITEMS} True"),
        ("crashed", "store.db-shm", "open the store once for writing"),
    ],
)
def test_a_folder_that_cannot_be_written_can_be_read(request, kind, lost, expected):
    """By a process that is not root, for whom nothing is read-only."""
    command = [sys.executable, "-c", READ_ONLY]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may write everywhere, and there is no setpriv to be somebody else")
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    with tempfile.TemporaryDirectory() as folder:
        path = copy_of(request.getfixturevalue(kind), Path(folder))
        if lost:
            (path / lost).unlink()
        for file in path.iterdir():
            file.chmod(0o444)
        path.chmod(0o555)
        os.chmod(folder, 0o755)
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
        path.chmod(0o755)
    if done.returncode and "Permission denied" in done.stderr:
        pytest.skip("another user cannot run Python here")
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    assert "read_only=True" in done.stdout
    assert expected in done.stdout


def test_read_only_is_a_promise(template, tmp_path):
    path = copy_of(template, tmp_path)
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    with Store.open(path, read_only=True) as store:
        assert len(store) == N_ITEMS
        with pytest.raises(ReadOnlyError):
            store.put([])
    after = {file.name: file.read_bytes() for file in path.iterdir() if file.name in before}
    assert after == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE items SET changed = 2.5 WHERE row = 7",
        "UPDATE items SET code = 'text' WHERE row = 7",
        "UPDATE names SET id = x'6e616d652033' WHERE id = 'name 3'",
        "UPDATE names SET id = 3.5 WHERE id = 'name 3'",
        "UPDATE items SET payload = CAST(x'7b22ff227d' AS TEXT) WHERE row = 7",
        "UPDATE names SET id = CAST(x'ff' AS TEXT) WHERE id = 'name 3'",
    ],
)
def test_values_of_another_type_are_noticed(template, tmp_path, statement):
    """Flipping one bit of a row's header turns text into bytes."""
    path = copy_of(template, tmp_path)
    connection = sqlite3.connect(path / "store.db")
    # Without STRICT, SQLite stores what it is given, as damage would.
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '') WHERE type = 'table'")
    connection.commit()
    connection.close()
    connection = sqlite3.connect(path / "store.db")
    connection.execute(statement)
    connection.commit()
    connection.execute("PRAGMA writable_schema = ON")
    for name, sql in connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall():
        ending = "STRICT, WITHOUT ROWID" if "WITHOUT" in sql else "STRICT"
        whole = sql.replace("WITHOUT ROWID", "").rstrip(" ,") + " " + ending
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (whole, name))
    connection.commit()
    connection.close()
    with Store.open(path, read_only=True) as store:
        assert not store.verify().ok
        with pytest.raises(CorruptFileError):
            list(store.scan())
