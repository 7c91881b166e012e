"""The simulated disk keeps what POSIX promises to keep, and may lose the rest: cases by hand."""

import random

import pytest
from power_disk import (
    CREATE,
    FOLDER,
    LINK,
    NAMELESS,
    REMOVE,
    RENAME,
    SIZE,
    SYNC,
    WRITE,
    Disk,
    Record,
    images_of,
)

ROOT, A, B, INNER = 1, 2, 3, 4
OPEN_ROOT = Record(FOLDER, ROOT)
SYNC_ROOT = Record(SYNC, ROOT)


def disk_after(*records, **how):
    disk = Disk(**how)
    for record in (OPEN_ROOT, *records):
        disk.replay(record)
    return disk


def states(disk, samples=300):
    """All distinct states that are drawn."""
    return {tuple(sorted(image.items())) for image in images_of(disk, samples, seed=1)}


def test_what_is_synced_stays_and_the_rest_may_be_lost():
    records = [Record(CREATE, A, path="a"), Record(WRITE, A, 0, data=b"xy")]
    assert states(disk_after(*records)) >= {(), (("a", b""),), (("a", b"xy"),), (("a", b"\0\0"),)}
    # The file's fsync does not keep its name.
    assert states(disk_after(*records, Record(SYNC, A))) == {(), (("a", b"xy"),)}
    assert states(disk_after(*records, Record(SYNC, A), SYNC_ROOT)) == {(("a", b"xy"),)}
    # Nor does that of the folder keep its content.
    assert (("a", b""),) in states(disk_after(*records, SYNC_ROOT))


def test_writes_survive_in_any_order_and_by_sectors():
    writes = [Record(WRITE, A, 512 * n, data=bytes([n + 1]) * 512) for n in range(2)]
    disk = disk_after(Record(CREATE, A, path="a"), SYNC_ROOT, *writes)
    assert (("a", bytes(512) + b"\2" * 512),) in states(disk)
    disk = disk_after(Record(CREATE, A, path="a"), SYNC_ROOT, Record(WRITE, A, 100, data=b"z" * 1024))
    found = {content for ((_, content),) in states(disk)}
    assert bytes(100) + b"z" * 412 in found
    assert bytes(512) + b"z" * 512 in found
    assert bytes(1124) in found


@pytest.mark.parametrize("second", [Record(SIZE, A, 1), Record(WRITE, A, 1, data=b"Y")])
def test_a_change_of_a_synced_file_is_there_or_not(second):
    first = [Record(CREATE, A, path="a"), Record(WRITE, A, 0, data=b"xy"), Record(SYNC, A), SYNC_ROOT]
    after = b"x" if second.kind == SIZE else b"xY"
    # A size that is lost after its data was cut off leaves zeros.
    zeros = {(("a", b"x\0"),)} if second.kind == SIZE else set()
    assert states(disk_after(*first, second)) == {(("a", b"xy"),), (("a", after),)} | zeros
    assert states(disk_after(*first, second, Record(SYNC, A))) == {(("a", after),)}


def test_a_rename_is_atomic_and_lasts_after_the_folder_is_synced():
    first = [Record(CREATE, A, path="a"), Record(WRITE, A, 0, data=b"x"), Record(SYNC, A), SYNC_ROOT]
    rename = Record(RENAME, path="a", data=b"b")
    assert states(disk_after(*first, rename)) == {(("a", b"x"),), (("b", b"x"),)}
    assert states(disk_after(*first, rename, SYNC_ROOT)) == {(("b", b"x"),)}
    over = [*first, Record(CREATE, B, path="b"), SYNC_ROOT, rename]
    assert states(disk_after(*over)) == {(("a", b"x"), ("b", b"")), (("b", b"x"),)}


def test_a_rename_between_folders_is_kept_by_a_sync_of_either():
    first = [Record(FOLDER, INNER, path="in"), Record(CREATE, A, path="a"), Record(SYNC, A), SYNC_ROOT]
    rename = Record(RENAME, path="a", data=b"in/a")
    assert len(states(disk_after(*first, rename))) == 2
    for folder in (ROOT, INNER):
        assert states(disk_after(*first, rename, Record(SYNC, folder))) == {(("in", None), ("in/a", b""))}


def test_a_new_folder_needs_a_sync_of_the_one_above():
    inside = [
        Record(FOLDER, INNER, path="in"),
        Record(CREATE, A, path="in/a"),
        Record(SYNC, A),
        Record(SYNC, INNER),
    ]
    assert states(disk_after(*inside)) == {(), (("in", None), ("in/a", b""))}
    assert states(disk_after(*inside, SYNC_ROOT)) == {(("in", None), ("in/a", b""))}
    moved = [*inside, SYNC_ROOT, Record(RENAME, path="in", data=b"out"), SYNC_ROOT]
    assert states(disk_after(*moved)) == {(("out", None), ("out/a", b""))}


def test_a_file_without_a_name_is_there_once_it_is_linked():
    records = [Record(NAMELESS, A, path=""), Record(WRITE, A, 0, data=b"x"), Record(SYNC, A)]
    assert states(disk_after(*records)) == {()}
    linked = [*records, Record(LINK, A, path="a")]
    assert states(disk_after(*linked)) == {(), (("a", b"x"),)}
    assert states(disk_after(*linked, SYNC_ROOT)) == {(("a", b"x"),)}


def test_what_is_removed_may_come_back():
    first = [Record(CREATE, A, path="a"), Record(SYNC, A), SYNC_ROOT]
    assert states(disk_after(*first, Record(REMOVE, path="a"))) == {(), (("a", b""),)}
    # A file of the same name and inode is another file.
    again = [Record(REMOVE, path="a"), Record(CREATE, A, path="a"), Record(WRITE, A, 0, data=b"y"), Record(SYNC, A)]
    assert states(disk_after(*first, *again)) == {(), (("a", b""),), (("a", b"y"),)}


def test_a_disk_that_lies_keeps_nothing():
    records = [Record(CREATE, A, path="a"), Record(WRITE, A, 0, data=b"x"), Record(SYNC, A), SYNC_ROOT]
    assert disk_after(*records).image(share=0) == {"a": b"x"}
    assert disk_after(*records, lies=lambda of_folder: True).image(share=0) == {}
    assert disk_after(*records, lies=lambda of_folder: not of_folder).image(share=0) == {"a": b""}


def test_files_that_sqlite_makes_anew_are_left_out():
    assert disk_after(Record(CREATE, A, path="store.db-shm")).image(share=1) == {}


def test_draws_follow_from_their_seed():
    disk = disk_after(Record(CREATE, A, path="a"), Record(WRITE, A, 0, data=bytes(range(256)) * 16))
    first, second = (disk.image(share=0.5, rng=random.Random(7)) for _ in range(2))
    assert first == second
