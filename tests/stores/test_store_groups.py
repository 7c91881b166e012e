"""Groups that stay: pages of them, giant ones, ids that are handed on, readers, limits, and files that are damaged."""

import shutil
import sqlite3
import threading

import numpy as np
import pytest

from hamtarget.errors import DtypeError, InputError, LimitError
from hamtarget.query import Bounds, Work
from hamtarget.search import Embeddings
from hamtarget.store.groups import following

N_BITS = 64


def codes_of(*numbers):
    """Codes in which so many of the first bits are 1: their distances are the differences of the numbers."""
    return np.packbits(np.arange(N_BITS) < np.array(numbers)[:, None], axis=1, bitorder="little")


@pytest.fixture
def store(stores):
    with stores.create(n_bits=N_BITS, radius=2, durability="os") as made:
        yield made


@pytest.fixture
def no_rebuild(monkeypatch):
    """Groups that are made anew are a failure, but for the first time."""

    def refuse(*_, **__):
        raise AssertionError("groups were made anew")

    def forbid():
        monkeypatch.setattr("hamtarget.store.groups.kept.make_anew", refuse)

    return forbid


def members(groups):
    return {group.id: [member.id for member in group.members] for group in groups.groups}


def test_a_group_keeps_its_id_when_groups_merge_and_split(store, no_rebuild):
    store.put_rows(["a", "b", "c", "d"], codes=codes_of(0, 1, 6, 7))
    assert members(store.groups()) == {1: ["a", "b"], 2: ["c", "d"]}
    no_rebuild()
    # A bridge: the older id stays.
    store.put_rows(["e", "f"], codes=codes_of(3, 5))
    assert members(store.groups()) == {1: ["a", "b", "e", "f", "c", "d"]}
    # It splits again: the part with the representative keeps the id, and no id comes twice.
    store.delete(["e"])
    assert members(store.groups()) == {3: ["c", "d", "f"], 1: ["a", "b"]}
    # Without its representative, the part with the most items keeps it.
    store.put_rows(["g", "h", "i"], codes=codes_of(9, 11, 12))
    assert members(store.groups()) == {3: ["c", "d", "f", "g", "h", "i"], 1: ["a", "b"]}
    store.delete(["c", "g", "d"])
    assert members(store.groups()) == {1: ["a", "b"], 3: ["h", "i"]}
    # What is put again as it was changes nothing; an item with another code leaves.
    store.put_rows(["h"], codes=codes_of(11), payloads=[{"seen": True}])
    assert members(store.groups()) == {1: ["a", "b"], 3: ["h", "i"]}
    store.put_rows(["i"], codes=codes_of(40))
    assert members(store.groups()) == {1: ["a", "b"]}


def test_a_chain_is_one_group_or_several_around_representatives(store):
    store.put_rows(range(8), codes=codes_of(*range(0, 16, 2)))
    (chain,) = store.groups().groups
    assert (chain.size, chain.representative, chain.members[-1].distance) == (8, 0, 14)
    found = store.groups(linkage="representative")
    assert members(found) == {1: [0, 1], 2: [2, 3], 3: [4, 5], 4: [6, 7]}
    assert max(member.distance for group in found.groups for member in group.members) == 2
    # Without a representative, its items look for another, and those after them as well.
    store.delete([0])
    assert members(store.groups(linkage="representative")) == {1: [1, 2], 3: [3, 4], 4: [5, 6]}


def test_giant_groups_are_counted_and_come_in_pages(store, no_rebuild):
    n_copies = 3000
    store.put_rows(range(10 * n_copies), codes=np.repeat(codes_of(*range(0, 10)), n_copies, axis=0))
    # All pairs would be 450 million; the limits allow for one search of each code.
    (group,) = store.groups(members=3, work=Work(Bounds(hits=200, rows=10 * n_copies))).groups
    assert (group.size, group.representative, group.is_capped) == (10 * n_copies, 0, True)
    assert [member.id for member in group.members] == [0, 1, 2]
    no_rebuild()
    # Another copy, and a new code beside ten times 3,000 others.
    store.put_rows([50_000, 60_000], codes=codes_of(4, 10))
    found = store.groups(members=1)
    assert (found.n_items, found.groups[0].size) == (10 * n_copies + 2, 10 * n_copies + 2)
    page = store.group_members(1, start=5 * n_copies - 1, limit=3)
    assert [(member.id, member.distance) for member in page] == [(5 * n_copies - 1, 4), (50_000, 4), (5 * n_copies, 5)]
    assert store.group_members(1, start=10 * n_copies + 1) == ((60_000, 10),)
    assert store.group_members(1, start=10 * n_copies + 2) == ()
    # A copy that goes does not split anything.
    store.delete([7, 50_000])
    assert store.groups(members=1).groups[0].size == 10 * n_copies


def test_members_come_in_pages_of_any_size(store):
    sizes = [3, 1, 4, 2]
    store.put_rows(range(10), codes=np.repeat(codes_of(0, 2, 1, 3), sizes, axis=0))
    whole = store.groups(members=None).groups[0].members
    assert [member.id for member in whole] == [0, 1, 2, 4, 5, 6, 7, 3, 8, 9]
    for start in range(12):
        for limit in (1, 2, 5, 20):
            assert store.group_members(1, start=start, limit=limit) == whole[start : start + limit]
            assert store.groups(members=limit).groups[0].members == whole[:limit]


def test_pages_of_groups_come_largest_first(store):
    sizes = [2, 5, 3, 2, 4]
    store.put_rows(range(sum(sizes)), codes=np.repeat(codes_of(*range(0, 50, 10)), sizes, axis=0))
    found = store.groups(limit=2)
    assert (found.n_groups, found.n_items) == (5, 16)
    assert [(group.id, group.size) for group in found.groups] == [(2, 5), (5, 4)]
    found = store.groups(limit=2, after=found.next)
    assert [(group.id, group.size) for group in found.groups] == [(3, 3), (1, 2)]
    found = store.groups(limit=2, after=found.next)
    assert [(group.id, group.size) for group in found.groups] == [(4, 2)]
    assert found.next is None
    assert len(store.groups(limit=5).groups) == 5
    assert store.groups(limit=5).next is None


def test_a_store_without_groups_has_none(store):
    assert store.groups() == (2, "single", 0, 0, (), None)
    store.put_rows(range(3), codes=codes_of(0, 20, 40))
    assert store.groups(0, linkage="representative") == (0, "representative", 0, 0, (), None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda store: store.groups(radius=65), InputError, "radius is 65"),
        (lambda store: store.groups(linkage="double"), InputError, "expected 'single' or 'representative'"),
        (lambda store: store.groups(limit=0), InputError, "limit is 0"),
        (lambda store: store.groups(members=0), InputError, "members is 0"),
        (lambda store: store.groups(after=7), InputError, "there is no group 7 within 2 bits"),
        (lambda store: store.groups(after="7"), DtypeError, "after is '7'"),
        (lambda store: store.groups(after=2**62), InputError, "after is"),
        (lambda store: store.group_members(7), InputError, "there is no group 7"),
        (lambda store: store.group_members(1, start=-1), InputError, "start is -1"),
        (lambda store: store.groups(work=Work(threads=0)), InputError, "threads is 0"),
    ],
)
def test_what_cannot_be_is_refused(store, call, error, message):
    with pytest.raises(error, match=message):
        call(store)


def test_work_that_reaches_a_limit_changes_nothing(store):
    store.put_rows(range(100), codes=codes_of(*range(50), *range(50)))
    before = store.groups(members=None)
    store.put_rows(range(100, 120), codes=codes_of(*range(44, 64)))
    for limits in (Bounds(hits=20).start(), Bounds(rows=20).start(), Bounds(seconds=0).start()):
        with pytest.raises(LimitError):
            store.groups(work=Work(limits))
    found = store.groups(members=None)
    assert [group.id for group in found.groups] == [group.id for group in before.groups]
    assert found.n_items == 120
    with pytest.raises(LimitError):
        store.groups(members=None, work=Work(Bounds(rows=119)))


def test_readers_follow_in_memory_from_what_is_kept(stores, store, no_rebuild):
    store.put_rows(["a", "b", "c", "d"], codes=codes_of(0, 1, 20, 21))
    store.groups()
    store.delete(["a"])
    no_rebuild()
    with stores.open(read_only=True) as reader:
        assert members(reader.groups()) == {2: ["c", "d"]}
        store.put_rows(["e", "f"], codes=codes_of(40, 41))
        assert members(reader.groups()) == {2: ["c", "d"], 3: ["e", "f"]}
        store.put_rows(["g", "h"], codes=codes_of(60, 61))
        # Whoever writes gives ids that stay, and the reader takes them over.
        assert members(store.groups()) == {2: ["c", "d"], 3: ["e", "f"], 4: ["g", "h"]}
        assert members(reader.groups()) == {2: ["c", "d"], 3: ["e", "f"], 4: ["g", "h"]}


def test_a_reader_holds_few_kinds_in_memory(stores, store):
    store.put_rows(["a", "b", "c"], codes=codes_of(0, 3, 6))
    with stores.open(read_only=True) as reader:
        for _ in range(2):
            assert [reader.groups(radius).n_groups for radius in range(8)] == [0, 0, 0, 1, 1, 1, 1, 1]


def test_groups_of_a_store_with_embeddings(stores):
    with stores.create("vectors", n_bits=N_BITS, radius=2, embeddings=Embeddings(8)) as store:
        store.put_rows(["a", "b", "c"], codes=codes_of(0, 1, 20), embeddings=np.ones((3, 8), dtype=np.float32))
        assert members(store.groups()) == {1: ["a", "b"]}
        store.put_rows(["d"], codes=codes_of(19), embeddings=np.ones((1, 8), dtype=np.float32))
        assert members(store.groups()) == {1: ["a", "b"], 2: ["c", "d"]}


def test_groups_are_asked_for_by_threads_while_items_come_and_go(store):
    store.put_rows(range(200), codes=codes_of(*range(50), *range(50), *range(50), *range(50)))
    failed = []

    def ask():
        try:
            for _ in range(10):
                for group in store.groups(0, members=None).groups:
                    assert len(group.members) == group.size
        except BaseException as error:  # told to the test
            failed.append(error)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    for number in range(30):
        store.put_rows(range(200 + number, 210 + number), codes=codes_of(*range(number, 10 + number)))
        store.delete([number, 100 + number])
    for asker in askers:
        asker.join()
    assert not failed
    sizes = [len(group.members) for group in store.groups(0, members=None).groups]
    assert sum(sizes) == store.groups(0).n_items


@pytest.fixture
def folder(folder_stores):
    """The folder of a closed store with two groups, whose ids are not those that new groups would get."""
    with folder_stores.create(n_bits=N_BITS, radius=2) as store:
        store.put_rows(["a", "b"], codes=codes_of(50, 50))
        store.groups()
        store.put_rows(["c", "d", "e", "f"], codes=codes_of(0, 1, 20, 21))
        store.delete(["a"])
        assert members(store.groups()) == {2: ["c", "d"], 3: ["e", "f"]}
    return folder_stores.place()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("damage", ["cut", "text", "flip", "empty", "tables", "trigger"])
def test_a_damaged_file_of_groups_is_made_again(folder_stores, folder, damage, read_only):
    path = folder / "groups" / "2-single.db"
    content = path.read_bytes()
    if damage in ("tables", "trigger"):
        with sqlite3.connect(path) as connection:
            statement = {
                "tables": "DROP TABLE members",
                "trigger": "CREATE TRIGGER t AFTER INSERT ON groups BEGIN DELETE FROM groups; END",
            }[damage]
            connection.execute(statement)
        connection.close()
    else:
        code = codes_of(21).tobytes()
        damaged = {
            "cut": content[: len(content) // 2],
            "text": b"nothing of the kind" * 1000,
            "flip": content.replace(code, codes_of(22).tobytes(), 1),
            "empty": b"",
        }
        assert damaged[damage] != content
        path.write_bytes(damaged[damage])
    with folder_stores.open(read_only=read_only) as store:
        assert list(members(store.groups()).values()) == [["c", "d"], ["e", "f"]]
        assert store.verify().ok


def test_a_store_that_was_brought_back_has_its_own_groups(folder_stores, folder):
    copy = folder_stores.place("copy")
    shutil.copytree(folder, copy)
    with folder_stores.open() as store:
        store.put_rows(["g", "h"], codes=codes_of(40, 41))
        assert members(store.groups()) == {2: ["c", "d"], 3: ["e", "f"], 4: ["g", "h"]}
    shutil.copytree(folder / "groups", copy / "groups", dirs_exist_ok=True)
    # The groups of the copy know of a change that it does not have, and that others take the number of.
    with folder_stores.open("copy") as store:
        for name in "ij":
            store.put_rows([name], codes=codes_of(60))
        assert members(store.groups()) == {2: ["c", "d"], 3: ["e", "f"], 5: ["i", "j"]}


def test_a_backup_and_an_older_store_go_without_groups(folder_stores, folder, tmp_path):
    with folder_stores.open(read_only=True) as store:
        store.backup(tmp_path / "backup")
    with folder_stores.open(read_only=True) as store:
        before = members(store.groups())
    shutil.rmtree(folder / "groups")
    with folder_stores.open(read_only=True) as store:
        assert sorted(members(store.groups()).values()) == sorted(before.values())


def test_many_changes_at_once_make_groups_anew_and_keep_ids(store, monkeypatch):
    monkeypatch.setattr(following, "_ALWAYS_FOLLOWED", 10)
    store.put_rows(["a", "b", "c", "d"], codes=codes_of(0, 1, 20, 21))
    store.groups()
    store.delete(["a", "b"])
    store.groups()
    store.put_rows(range(40), codes=codes_of(*[40] * 40))
    assert [(group.id, group.size) for group in store.groups().groups] == [(3, 40), (2, 2)]
