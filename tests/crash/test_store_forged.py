"""Files that somebody has forged, checksums included: a typed error, never another one, and nothing hangs."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zlib

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, FileError, HamtargetError
from hamtarget.store import Item, Store
from hamtarget.store.items.ids import name_checksum, row_checksum
from hamtarget.store.settings import _checksum

CODE = np.zeros(8, dtype=np.uint8)
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "store"
    with Store.create(path, n_bits=64) as store:
        store.put([Item(7, code=CODE, payload={"a": 1}), Item("seven", code=CODE, payload={"a": 2})])
    return path


@pytest.fixture
def store_path(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def change(path, *statements, index=False):
    """Change the database as a forger would, without a writer's checks."""
    connection = sqlite3.connect(path / "store.db", isolation_level=None)
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    connection.close()
    if not index:
        for file in path.glob("index-*.ham"):
            file.unlink()


def use(path):
    """Do all that a program does with a store; every error must be a typed one."""
    for read_only in (True, False):
        try:
            with Store.open(path, read_only=read_only) as store:
                for call in (
                    lambda store=store: store.get([7, "seven"]),
                    lambda store=store: list(store.scan()),
                    lambda store=store: list(store.scan({"a": 1})),
                    lambda store=store: store.count({"a": 1}),
                    lambda store=store: store.search(code=CODE, radius=63),
                    lambda store=store: store.search(code=CODE, radius=63, filter={"a": 1}),
                    lambda store=store: store.verify(),
                    lambda store=store: store.put([Item("seven", code=CODE)]),
                    lambda store=store: store.delete(["seven"]),
                    lambda store=store: store.compact(),
                ):
                    try:
                        call()
                    except HamtargetError:
                        pass
        except HamtargetError:
            pass
    try:
        shutil.rmtree(path.with_name("repaired"), ignore_errors=True)
        Store.repair(path, path.with_name("repaired"))
    except HamtargetError:
        pass


def with_settings(path, **forged):
    connection = sqlite3.connect(path / "store.db")
    texts = dict(connection.execute("SELECT name, value FROM settings"))
    connection.close()
    del texts["checksum"]
    texts.update(forged)
    change(
        path,
        *(("INSERT OR REPLACE INTO settings VALUES (?, ?)", each) for each in texts.items()),
        ("INSERT OR REPLACE INTO settings VALUES ('checksum', ?)", (_checksum(texts),)),
    )


@pytest.mark.parametrize(
    "forged",
    [
        {"n_bits": DEEP},
        {"n_bits": '"64"'},
        {"n_bits": "1e308"},
        {"n_bits": "9" * 5000},
        {"n_bits": "1000000000000"},
        {"n_bits": "-8"},
        {"n_bits": "true"},
        {"n_bits": "NaN"},
        {"radius": "64"},
        {"radius": "[2]"},
        {"substrings": "1000000000"},
        {"substrings": "null"},
        {"durability": '"never"'},
        {"durability": "{}"},
        {"has_encoder": '"yes"'},
        {"embeddings": "3"},
        {"embeddings": '{"n_dims": 1e9}'},
        {"embeddings": '{"n_dims": 3, "dtype": "object", "metric": "l2"}'},
        {"embeddings": '{"n_dims": 3, "dtype": [], "metric": {}}'},
        {"unknown": "1"},
        {"n_bits": "\ud7ff"},
    ],
    ids=str,
)
def test_forged_settings(store_path, forged):
    with_settings(store_path, **forged)
    for read_only in (True, False):
        with pytest.raises(CorruptFileError, match="settings"):
            Store.open(store_path, read_only=read_only)
    use(store_path)


@pytest.mark.parametrize(
    "forged",
    [
        {"sequence": 2**63 - 1},
        {"sequence": -5},
        {"next_row": 2**63 - 1},
        {"next_row": 0},
        {"forgotten": 2**63 - 1},
        {"forgotten": -(2**63)},
        {"snapshot": "../../etc/passwd"},
        {"snapshot": "a\0b"},
        {"snapshot": "x" * 100_000},
        {"snapshot": "index-0000000000000000.ham", "snapshot_sequence": 2**63 - 1},
        {"snapshot_sequence": -(2**63)},
        {"snapshot": None, "snapshot_sequence": 3},
    ],
    ids=lambda forged: str(forged)[:40],
)
def test_forged_state(store_path, forged):
    connection = sqlite3.connect(store_path / "store.db")
    names = ("sequence", "next_row", "forgotten", "snapshot", "snapshot_sequence")
    state = dict(zip(names, connection.execute(f"SELECT {', '.join(names)} FROM state").fetchone(), strict=True))
    connection.close()
    state.update(forged)
    values = tuple(state.values())
    change(
        store_path,
        ("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", (*values, zlib.crc32(repr(values).encode()))),
    )
    use(store_path)


@pytest.mark.parametrize(
    "payload",
    [
        DEEP.encode(),
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"a": "\xff\xfe"}',
        b'{"a": 1',
        b"",
        b"nonsense",
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"\0",
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1}'.decode().encode("utf-16"),
    ],
    ids=lambda payload: str(payload[:12]),
)
def test_forged_payloads(store_path, payload):
    checksum = row_checksum(7, bytes(8), None, payload, 1)
    change(
        store_path,
        ("UPDATE items SET payload = CAST(? AS TEXT), changed = 1, checksum = ? WHERE row = 7", (payload, checksum)),
    )
    with Store.open(store_path, read_only=True) as store:
        for call in (lambda: store.get([7]), lambda: list(store.scan())):
            with pytest.raises(CorruptFileError, match="7"):
                call()
        assert store.get(["seven"])[0].payload == {"a": 2}
    use(store_path)


@pytest.mark.parametrize("id", [b"bytes", 3.5, "x" * 100_000, 7, -1], ids=lambda id: str(id)[:10])
def test_forged_names(store_path, id):
    row = 2**62
    change(store_path, ("UPDATE names SET id = ?, checksum = ? WHERE row = ?", (id, name_checksum(row, id), row)))
    use(store_path)


@pytest.mark.parametrize(
    "code", [b"", b"1", bytes(7), bytes(9), bytes(10_000_000)], ids=lambda code: f"{len(code)} bytes"
)
def test_forged_codes(store_path, code):
    checksum = row_checksum(7, code, None, None, 1)
    change(
        store_path,
        ("UPDATE items SET code = ?, payload = NULL, changed = 1, checksum = ? WHERE row = 7", (code, checksum)),
    )
    with pytest.raises(CorruptFileError, match="length"):
        Store.open(store_path, read_only=True)
    use(store_path)


@pytest.mark.parametrize(
    "statements",
    [
        # Reading this never ends.
        [
            "ALTER TABLE items RENAME TO items_of_before",
            "CREATE VIEW items AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
            "SELECT x AS row, x'00' AS code, NULL AS embedding, NULL AS payload, 1 AS changed, 1 AS checksum FROM n",
        ],
        ["CREATE TRIGGER forged AFTER INSERT ON items BEGIN DELETE FROM items; END"],
        ["CREATE TRIGGER forged BEFORE UPDATE ON state BEGIN SELECT RAISE(IGNORE); END"],
        ["ALTER TABLE items ADD COLUMN more TEXT"],
        ["DROP INDEX items_by_change"],
        ["DROP TABLE names", "CREATE TABLE names (row, id, checksum)"],
        ["DROP TABLE settings", "CREATE VIEW settings AS SELECT 'n_bits' AS name, '64' AS value"],
    ],
    ids=lambda statements: statements[-1][:30],
)
def test_forged_tables(store_path, statements):
    change(store_path, *statements)
    for read_only in (True, False):
        with pytest.raises(CorruptFileError, match="not as a store has it"):
            Store.open(store_path, read_only=read_only)
    use(store_path)


def test_tables_and_indexes_of_others_are_left_alone(store_path):
    change(store_path, "CREATE TABLE mine (x)", "CREATE INDEX mine_too ON items (checksum)")
    with Store.open(store_path) as store:
        assert store.verify().ok


@pytest.mark.parametrize("field", ["page size", "page count", "freelist", "schema root"])
def test_forged_headers(store_path, field):
    file = store_path / "store.db"
    for value in (0, 1, 512, 65535):
        forged = bytearray(file.read_bytes())
        if field == "page size":
            forged[16:18] = value.to_bytes(2)
        elif field == "page count":
            forged[28:32] = (value * 30000 & 0xFFFFFFFF).to_bytes(4)
        elif field == "freelist":
            forged[32:40] = (value << 32 | 3).to_bytes(8)
        else:
            forged[100:112] = value.to_bytes(12)
        shutil.copytree(store_path, path := store_path.with_name(f"{field} {value}"))
        (path / "store.db").write_bytes(forged)
        use(path)


def test_a_forged_mark_of_a_backup(store_path, tmp_path):
    with Store.open(store_path) as store:
        store.backup(tmp_path / "copy")
        for mark in ("", DEEP, "[]", '{"sequence": "x"}', '{"sequence": 1e999}', "\0"):
            (tmp_path / "copy" / "backup.json").write_text(mark)
            with pytest.raises(FileError, match="is no backup"):
                store.backup(tmp_path / "copy")
        (tmp_path / "copy" / "backup.json").write_bytes(json.dumps({"sequence": 0}).encode("utf-16"))
        with pytest.raises(FileError, match="is no backup"):
            store.backup(tmp_path / "copy")


MANY_FILES = """
import os, resource, sys
from hamtarget.errors import FileError, ReadOnlyError
from hamtarget.store import Store
Store.open(sys.argv[1]).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for free in range(6):
    for read_only in (False, True):
        try:
            Store.open(sys.argv[1], read_only=read_only).close()
            print("opened", free)
        except FileError as error:
            print("read_only=True" in str(error), "ulimit -n" in str(error), error)
    os.close(held.pop())
"""


def test_too_many_open_files_are_called_that(store_path):
    """And not a folder that cannot be written."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_FILES, str(store_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("False True") for line in lines)
    assert not any(line.startswith("True") for line in lines), lines
    assert not any(line.startswith("False False") for line in lines), lines


def test_new_folders_above_a_store_are_forced_to_disk(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def recording(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc to see which folder a handle is of")
    monkeypatch.setattr(os, "fsync", recording)
    Store.create(tmp_path / "a" / "b" / "c" / "store", n_bits=64).close()
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b"), str(tmp_path / "a" / "b" / "c")} <= set(
        synced
    )
