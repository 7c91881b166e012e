"""Stores of every version that was ever released open, hold what was put into them, and can be brought to this one.

The folders in `stores/` are never rewritten: see golden_stores.py.
"""

import hashlib
import os
import shutil
import signal
import sqlite3
import warnings

import golden_stores
import numpy as np
import pytest

from hamtarget.errors import UnsupportedFileError
from hamtarget.store import Item, Store
from hamtarget.store.sqlite.tables import migrations

# Whoever changes one of these has broken the stores that people have.
SHA256 = {
    "version_1/closed/changes": "35be322d094f9d154a8aba4733b8497f180353bd7ae7b0a15f90b586b549f28b",
    "version_1/closed/index-ae2962a3b0bff452.ham": "520120dec8bc43af9667a64943e258d0caf40d300e8cedb5ad7346067cde1b22",
    "version_1/closed/store.db": "b3ddac681d20bd8d6ce4ce094ad843cfe11ae4c8fcbcc4047ee35734633e16b6",
    "version_1/crashed/changes": "35be322d094f9d154a8aba4733b8497f180353bd7ae7b0a15f90b586b549f28b",
    "version_1/crashed/index-b3d057638ff3a479.ham": "d19a46ba0dacd7a035d81a097daa7ab63cea5296bad1486ee65195e055b5a638",
    "version_1/crashed/store.db": "46b14b7fa4cb64f7e75b9d1b317399d59b26b9f16b65a47cc103b89606253eec",
    "version_1/crashed/store.db-wal": "b0b45fefaf530128d5724c42df312d57b50e53c951f459a955dff27fc46fcaa6",
    "version_3/closed/changes": "d1940a51bea1b530cc9c0d905f885643a14cdab60c0eddd1a86da68c1861bb48",
    "version_3/closed/index-bcbb9c39525f59a5.ham": "e3e77fc17d7015a1834ebd19c1995222c0c827a970754bf4784602b56a5cfd2f",
    "version_3/closed/store.db": "4dc59bf135484081b1f370428f1bb213375977bf2f9f7b67ec19b720c4589338",
    "version_3/crashed/changes": "d1940a51bea1b530cc9c0d905f885643a14cdab60c0eddd1a86da68c1861bb48",
    "version_3/crashed/index-2c795816b93a286d.ham": "b566939edaaf9a8398be6cceda5af38cb1a14385637faf95f7f2df94597a5b24",
    "version_3/crashed/store.db": "58f47ef22617515633ed918746e91618360358760f10a8ae6d6a608c71b90898",
    "version_3/crashed/store.db-wal": "f78dd270bf129332e2af048b669618d839f9b8d947fe5cd50b71c2a2abf28b37",
}
VERSIONS = sorted({name.split("/")[0] for name in SHA256})


def copied(version, kind, tmp_path):
    return shutil.copytree(golden_stores.FOLDER / version / kind, tmp_path / "store")


def check(store, version="version_1"):
    """Check that the store holds every row, and finds it."""
    if version == "version_3":
        check_several(store)
        return
    rows, _ = golden_stores.expected()
    items = {item.id: item for item in store.scan()}
    assert len(items) == len(store) == len(rows)
    for id, code, embedding, payload in rows:
        np.testing.assert_array_equal(items[id].code, code)
        np.testing.assert_array_equal(items[id].embedding, embedding)
        assert items[id].payload == payload
        assert id in [hit.id for hit in store.search(code=code, radius=0)]
    report = store.verify()
    assert report.ok, report.problems


def check_several(store):
    """Check that the store holds every item with all of its codes, and finds it by each of them."""
    expected = golden_stores.expected_several()
    items = {item.id: item for item in store.scan()}
    assert items.keys() == expected.keys()
    assert len(store) == len(expected)
    for id, (codes, embeddings, payload) in expected.items():
        item = items[id]
        assert item.payload == payload
        np.testing.assert_array_equal(item.code[None] if len(codes) == 1 else item.codes, codes)
        np.testing.assert_array_equal(item.embedding[None] if len(codes) == 1 else item.embeddings, embeddings)
        found = {match.id: match for match in store.match(codes=codes, radius=0, at_least=len(codes))}
        assert (found[id].n_item_matched, found[id].n_item_codes) == (len(codes), len(codes))
    report = store.verify()
    assert report.ok, report.problems


def test_the_files_are_those_that_were_released():
    found = {
        str(file.relative_to(golden_stores.FOLDER)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in golden_stores.FOLDER.rglob("*")
        if file.is_file()
    }
    assert found == SHA256


@pytest.mark.parametrize("kind", golden_stores.KINDS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_of_an_earlier_version_opens(version, kind, read_only, tmp_path):
    path = copied(version, kind, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.open(path, read_only=read_only) as store:
            check(store, version)


@pytest.mark.parametrize("kind", golden_stores.KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_can_be_written_backed_up_and_repaired(version, kind, tmp_path):
    path = copied(version, kind, tmp_path)
    assert Store.repair(path, tmp_path / "repaired").ok
    with Store.open(path) as store:
        store.put([Item("new", code=np.ones(8, np.uint8), embedding=np.zeros(3))])
        store.delete(["new"])
        store.backup(tmp_path / "copy")
    for place in ("store", "copy", "repaired"):
        with Store.open(tmp_path / place) as store:
            check(store, version)


# A migration of two steps, as a later version might have: a table of its own, and a column of every row in it.


def first_step(connection, progress):
    connection.execute("CREATE TABLE sizes (row INTEGER PRIMARY KEY, size INTEGER NOT NULL) STRICT")


def second_step(connection, progress):
    (n_rows,) = connection.execute("SELECT count(*) FROM items").fetchone()
    rows = connection.execute("SELECT row, length(code) FROM items").fetchall()
    for done, row in enumerate(rows, 1):
        connection.execute("INSERT INTO sizes VALUES (?, ?)", row)
        if progress:
            progress(done, n_rows)


def no_step(connection, progress):
    """The versions in between are those of stores that hold more, which nobody is brought to."""


LATER = 5


@pytest.fixture
def later(monkeypatch):
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", LATER)
    monkeypatch.setattr(migrations, "STEPS", {1: first_step, 2: second_step, 3: no_step, 4: no_step})
    return monkeypatch


def version_of(path):
    connection = sqlite3.connect(f"file:{path / 'store.db'}?mode=ro", uri=True)
    try:
        return connection.execute("PRAGMA user_version").fetchone()[0]
    finally:
        connection.close()


def n_sizes(path):
    connection = sqlite3.connect(f"file:{path / 'store.db'}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT count(*) FROM sizes").fetchone()[0]
    finally:
        connection.close()


@pytest.mark.parametrize("kind", golden_stores.KINDS)
def test_opening_for_writing_brings_a_store_to_this_version(kind, later, tmp_path):
    path = copied("version_1", kind, tmp_path)
    told = []
    with Store.open(path, progress=lambda done, total: told.append((done, total))) as store:
        check(store)
    assert version_of(path) == LATER
    assert n_sizes(path) == len(golden_stores.expected()[0])
    assert told[-1][0] == told[-1][1]
    with Store.open(path, read_only=True) as store:
        check(store)


def test_reading_only_says_what_to_do(later, tmp_path):
    path = copied("version_1", "closed", tmp_path)
    before = (path / "store.db").read_bytes()
    with pytest.raises(UnsupportedFileError, match="has version 1, and this hamtarget reads 5.*once for writing"):
        Store.open(path, read_only=True)
    assert (path / "store.db").read_bytes() == before


def test_a_version_that_no_step_leads_from_is_refused(later, tmp_path):
    later.setattr(migrations, "STEPS", {2: second_step, 3: no_step, 4: no_step})
    path = copied("version_1", "closed", tmp_path)
    before = (path / "store.db").read_bytes()
    with pytest.raises(UnsupportedFileError, match="no release wrote"):
        Store.open(path)
    assert (path / "store.db").read_bytes() == before


def test_a_step_that_commits_by_itself_is_noticed(later, tmp_path):
    migrations.STEPS[1] = lambda connection, _: connection.executescript("SELECT 1")
    path = copied("version_1", "closed", tmp_path)
    with pytest.raises(RuntimeError, match="ended the transaction"):
        Store.open(path)
    assert version_of(path) == 1


@pytest.mark.parametrize("kind", golden_stores.KINDS)
@pytest.mark.parametrize("moment", ["begin", "first", "middle", "second", "version", "commit"])
def test_a_kill_at_any_step_leaves_one_of_the_two_versions(kind, moment, later, tmp_path):
    path = copied("version_1", kind, tmp_path)

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            if moment == "begin":
                migrations.STEPS[1] = die
            elif moment == "first":
                migrations.STEPS[2] = die
            elif moment == "middle":
                migrations.STEPS[2] = lambda connection, _: second_step(connection, lambda n, _: n == 50 and die())
            elif moment == "second":
                migrations.STEPS[2] = lambda connection, _: (second_step(connection, None), die())
            elif moment == "version":
                original = second_step

                def dies_with_version(connection, progress):
                    original(connection, progress)
                    # Called for every statement: the one that sets the version is the next but one.
                    connection.set_trace_callback(lambda sql: sql.startswith("COMMIT") and die())

                migrations.STEPS[2] = dies_with_version
            else:
                # After the commit, before anything else.
                from hamtarget.store.sqlite import engine

                engine.open_index = die
            Store.open(path)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert version_of(path) == (LATER if moment == "commit" else 1)
    # What it was can be opened by the version that wrote it ...
    if moment != "commit":
        with pytest.MonkeyPatch.context() as earlier:
            earlier.setattr(migrations, "SCHEMA_VERSION", 1)
            with Store.open(shutil.copytree(path, tmp_path / "earlier")) as store:
                check(store)
    # ... and be brought to this one.
    with Store.open(path) as store:
        check(store)
    assert version_of(path) == LATER
    assert n_sizes(path) == len(golden_stores.expected()[0])


def test_a_migrated_store_is_refused_by_the_version_before(later, tmp_path):
    path = copied("version_1", "closed", tmp_path)
    Store.open(path).close()
    later.undo()
    before = (path / "store.db").read_bytes()
    with pytest.raises(UnsupportedFileError, match="has version 5; this hamtarget reads up to 4"):
        Store.open(path)
    assert (path / "store.db").read_bytes() == before
