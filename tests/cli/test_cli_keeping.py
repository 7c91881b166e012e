"""`hamtarget backup`, `restore` and `repair`, and what `verify` and `info` say of a store that lost changes."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.store import Item, Store
from hamtarget.store.sqlite.tables import database

CODES = np.random.default_rng(1).integers(0, 256, (40, 8), dtype=np.uint8)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def store_path(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(range(30), codes=CODES[:30], payloads=[{"text": f"text of {number}"} for number in range(30)])
    return tmp_path / "store"


@pytest.fixture
def lossy(tmp_path):
    """A store whose writer died, and whose log was damaged in the middle."""
    with Store.create(tmp_path / "first", n_bits=64) as store:
        for number in range(10):
            store.put([Item(number, code=CODES[number])])
        path = shutil.copytree(tmp_path / "first", tmp_path / "lossy")
    log = bytearray((path / "store.db-wal").read_bytes())
    log[len(log) // 2] ^= 1
    (path / "store.db-wal").write_bytes(log)
    return path


def test_backup_and_restore(store_path, tmp_path):
    result = run("backup", store_path, tmp_path / "copy")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tmp_path / 'copy'}: 30 items at change 1, ")
    assert result.stdout.endswith("whole\n")
    told = json.loads(run("backup", store_path, tmp_path / "copy", "--json").stdout)
    assert (told["items"], told["changes"]) == (30, 1)
    assert run("search", tmp_path / "copy", CODES[3].tobytes().hex()).exit_code == 0
    with Store.open(store_path) as store:
        store.delete(range(20))
    refused = run("restore", tmp_path / "copy", store_path)
    assert refused.exit_code == 2
    assert "--replace" in refused.stderr
    result = run("restore", tmp_path / "copy", store_path, "--replace")
    assert result.exit_code == 0
    assert "30 items at change 1" in result.stdout
    assert run("verify", store_path).stdout == f"{store_path}: whole (store, 30 rows)\n"


def test_backup_refuses_in_one_line(store_path, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"a")
    result = run("backup", store_path, tmp_path / "photos")
    assert result.exit_code == 2
    assert "is no backup" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_store_that_lost_changes(lossy, tmp_path):
    result = run("verify", lossy)
    assert result.exit_code == 1
    assert "changes are missing" in result.stdout
    assert f"{lossy}: DAMAGED" in result.stdout
    told = run("info", lossy)
    assert told.exit_code == 0
    assert "warning:" in told.stderr
    assert "changes are missing" in told.stderr
    refused = run("backup", lossy, tmp_path / "copy")
    assert refused.exit_code == 2
    assert "restore a backup, or go on without them: `hamtarget repair" in refused.stderr
    result = run("repair", lossy, tmp_path / "repaired")
    assert result.exit_code == 1, result.output
    assert "the last 6 changes are lost" in result.stdout
    assert result.stdout.endswith(f"{tmp_path / 'repaired'}: 4 items came back; not all\n")
    assert run("verify", tmp_path / "repaired").exit_code == 0


def test_repair_says_what_did_not_come_back(store_path, tmp_path):
    with sqlite3.connect(store_path / "store.db") as connection:
        connection.execute("UPDATE items SET payload = '{}' WHERE row IN (3, 4)")
    connection.close()
    result = run("repair", store_path, tmp_path / "repaired")
    assert result.exit_code == 1
    assert "2 rows are damaged; first: 3, 4" in result.stdout
    assert result.stdout.endswith("28 items came back; not all\n")
    told = json.loads(run("repair", store_path, tmp_path / "again", "--json").stdout)
    assert (told["items"], told["n_bad_rows"], told["missing"], told["whole"]) == (28, 2, [3, 4], False)
    assert run("repair", store_path, tmp_path / "again").exit_code == 2


@pytest.mark.parametrize(("version", "is_safe"), [((3, 51, 2), False), ((3, 51, 3), True), ((3, 60, 0), True)])
def test_info_names_sqlite_and_warns_of_an_old_one(monkeypatch, version, is_safe):
    monkeypatch.setattr(database.sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(database.sqlite3, "sqlite_version", ".".join(map(str, version)))
    told = json.loads(run("info", "--json").stdout)["sqlite"]
    assert told.startswith(".".join(map(str, version)))
    assert ("let no other program write" in told) is not is_safe
    assert "\n" not in told
