"""Stores that were written earlier open, hold what was put into them, and can be written, backed up and repaired.

The folders in `stores/` are not written again: see golden_stores.py.
"""

import hashlib
import shutil
import sqlite3
import warnings

import golden_stores
import numpy as np
import pytest

from hamtarget.errors import UnsupportedFileError
from hamtarget.store import Item, Store

# A change of one of these breaks the stores that people have.
SHA256 = {
    "one/closed/changes": "95082eb98287aa05fc8389609dda161aa015f1eaa8ffbe2cc987ab423ad0ec18",
    "one/closed/index-d05916a2a2358a1a.ham": "35271bd0c8a53ee74b4c621666a51dd98565509e05e60a2702dffd7d732c2826",
    "one/closed/store.db": "76e6f66dccdc1152c2b9c8c242856169cfb206226c91c7869d5cf54b1401d04e",
    "one/crashed/changes": "95082eb98287aa05fc8389609dda161aa015f1eaa8ffbe2cc987ab423ad0ec18",
    "one/crashed/index-a6c80b9ee25f2dc6.ham": "61f959996a46af7b7ef9b9d8dee74cd8392700a4df1bdddb98a83b9f0500a884",
    "one/crashed/store.db": "a512aca3e0d2fde4b49eebf69062befacb3ca7ccce37f8a81136b6f9f4920d80",
    "one/crashed/store.db-wal": "1fe96aff2029e2deb513d9bbb49ecbbd0897c1263355dbed44ca907406c74dd0",
    "several/closed/changes": "d1940a51bea1b530cc9c0d905f885643a14cdab60c0eddd1a86da68c1861bb48",
    "several/closed/index-2acc33abf198e1f5.ham": "2d6e32fd81b4e108f98654e4fb9eeeca7cfe31001a5c3538ffc961f427932ebc",
    "several/closed/store.db": "445855f753c0130ab73813686e417b583a85afbda5d42f5cfc41bb229745804f",
    "several/crashed/changes": "d1940a51bea1b530cc9c0d905f885643a14cdab60c0eddd1a86da68c1861bb48",
    "several/crashed/index-bf6a7c8ecce821f3.ham": "2e8886acde0255a1cd2acf604798244c978af41940cbec46f1dd7190a8b6ad8a",
    "several/crashed/store.db": "d63dce4d830fac55bc5683924a476f75383f12ab139570dc94c8723b770f1749",
    "several/crashed/store.db-wal": "82bf814294cfe06d884991e9a793666808023aa1e6963587655f2ad2987c6337",
}


def copied(name, kind, tmp_path):
    return shutil.copytree(golden_stores.FOLDER / name / kind, tmp_path / "store")


def check(store, name):
    """Check that the store holds every row, and finds it."""
    if name == "several":
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


def test_the_files_are_those_that_were_written():
    found = {
        str(file.relative_to(golden_stores.FOLDER)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in golden_stores.FOLDER.rglob("*")
        if file.is_file()
    }
    assert found == SHA256


@pytest.mark.parametrize("kind", golden_stores.KINDS)
@pytest.mark.parametrize("name", golden_stores.MAKERS)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_opens(name, kind, read_only, tmp_path):
    path = copied(name, kind, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.open(path, read_only=read_only) as store:
            check(store, name)


@pytest.mark.parametrize("kind", golden_stores.KINDS)
@pytest.mark.parametrize("name", golden_stores.MAKERS)
def test_it_can_be_written_backed_up_and_repaired(name, kind, tmp_path):
    path = copied(name, kind, tmp_path)
    assert Store.repair(path, tmp_path / "repaired").ok
    with Store.open(path) as store:
        store.put([Item("new", code=np.ones(8, np.uint8), embedding=np.zeros(3))])
        store.delete(["new"])
        store.backup(tmp_path / "copy")
    for place in ("store", "copy", "repaired"):
        with Store.open(tmp_path / place) as store:
            check(store, name)


def test_a_store_of_a_later_version_is_refused(tmp_path):
    path = copied("one", "closed", tmp_path)
    with sqlite3.connect(path / "store.db") as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    before = (path / "store.db").read_bytes()
    for read_only in (True, False):
        with pytest.raises(UnsupportedFileError, match=f"has version {version + 1}; this hamtarget reads"):
            Store.open(path, read_only=read_only)
    assert (path / "store.db").read_bytes() == before
