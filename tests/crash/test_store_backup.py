"""A backup is a whole store of one moment, or it is not there; a restore puts it in place, or leaves what was there."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from small_disk import run_on_small_disk

from hamtarget.errors import CorruptFileError, FileError, LockedError, LostChangesError
from hamtarget.store import Item, Store

HERE = Path(__file__).parent
CODES = np.random.default_rng(4).integers(0, 256, (5000, 8), dtype=np.uint8)


def fill(store, n_rows, first=0):
    rows = range(first, first + n_rows)
    store.put_rows(
        [row if row % 2 else f"name {row}" for row in rows],
        codes=CODES[first : first + n_rows],
        payloads=[{"n": row, "text": "x" * (row % 300)} for row in rows],
    )


def content(path):
    with Store.open(path, read_only=True) as store:
        report = store.verify()
        assert report.ok, report.problems
        return {item.id: (item.code.tobytes(), json.dumps(item.payload)) for item in store.scan()}


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_a_backup_is_the_store(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 1000)
        store.compact()
        fill(store, 100, first=1000)
        store.delete([1, "name 2"])
        told = []
        report = store.backup(tmp_path / "backups" / "store", progress=lambda done, total: told.append((done, total)))
        expected = content(tmp_path / "store")
    assert (report.items, report.sequence) == (1098, 3)
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert content(tmp_path / "backups" / "store") == expected
    assert leftovers(tmp_path / "backups") == []
    # It is a store like any other.
    with Store.open(tmp_path / "backups" / "store") as copy:
        copy.put([Item("more", code=CODES[0])])
        assert copy.sequence == 4


def test_a_second_backup_replaces_the_first_and_takes_over_its_index(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 500)
        store.compact()
        assert not store.backup(tmp_path / "copy").is_index_reused
        fill(store, 10, first=500)
        assert store.backup(tmp_path / "copy").is_index_reused
        assert content(tmp_path / "copy") == content(tmp_path / "store")
        store.compact()
        assert not store.backup(tmp_path / "copy").is_index_reused
        assert content(tmp_path / "copy") == content(tmp_path / "store")


def test_a_damaged_index_of_the_backup_before_is_not_taken_over(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 500)
        store.compact()
        store.backup(tmp_path / "copy")
        (index,) = (tmp_path / "copy").glob("index-*.ham")
        damaged = bytearray(index.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        index.write_bytes(damaged)
        assert not store.backup(tmp_path / "copy").is_index_reused
    assert content(tmp_path / "copy") == content(tmp_path / "store")


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_an_index_that_cannot_be_used_does_not_keep_a_store_from_being_backed_up(tmp_path, damage):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 500)
    (index,) = (tmp_path / "store").glob("index-*.ham")
    index.unlink() if damage == "missing" else index.write_bytes(b"something else")
    with Store.open(tmp_path / "store", read_only=True) as store:
        store.backup(tmp_path / "copy")
    assert len(content(tmp_path / "copy")) == 500


def write_in_steps(path, ready, stop):
    with Store.open(path) as store:
        number = 0
        while not stop.is_set():
            # A change is two rows: half of one would be seen.
            store.put([Item(2 * number, code=CODES[number % 5000]), Item(2 * number + 1, code=CODES[0])])
            number += 1
            if number == 50:
                ready.set()


def test_a_busy_writer_in_another_process_goes_on_and_the_backup_ends(tmp_path):
    Store.create(tmp_path / "store", n_bits=64, durability="os").close()
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    writer = context.Process(target=write_in_steps, args=(tmp_path / "store", ready, stop))
    writer.start()
    try:
        assert ready.wait(60)
        sequences = []
        for _ in range(5):
            with Store.open(tmp_path / "store", read_only=True) as store:
                report = store.backup(tmp_path / "copy")
            # Whole changes, all up to the one of the backup.
            assert report.items == 2 * report.sequence
            assert sorted(content(tmp_path / "copy")) == list(range(report.items))
            sequences.append(report.sequence)
    finally:
        stop.set()
        writer.join(60)
    assert sequences == sorted(set(sequences))


def test_a_backup_of_the_writing_process_itself_while_threads_write(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64, durability="os") as store:
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                fill(store, 2, first=number % 4000)
                number += 2

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(3):
                time.sleep(0.05)
                report = store.backup(tmp_path / "copy")
                assert len(content(tmp_path / "copy")) == report.items
        finally:
            stop.set()
            thread.join()


@pytest.mark.slow
def test_a_killed_backup_leaves_the_one_before_or_the_new_one(tmp_path):
    """And the next one cleans up. 40 kills at random moments."""
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 2000)
        store.compact()
        store.backup(tmp_path / "copy")
        known = {store.sequence: content(tmp_path / "store")}

    def begin_backup():
        child = os.fork()
        if child == 0:
            try:
                with Store.open(tmp_path / "store", read_only=True) as store:
                    store.backup(tmp_path / "copy")
            finally:
                os._exit(0)
        return child

    # Kills must come while a backup is under way, on a fast machine as on a slow one.
    started = time.monotonic()
    os.waitpid(begin_backup(), 0)
    seconds = time.monotonic() - started
    rng = random.Random(3)
    under_way = 0
    for _ in range(40):
        with Store.open(tmp_path / "store") as store:
            fill(store, 5, first=rng.randrange(4000))
            known[store.sequence] = content(tmp_path / "store")
        child = begin_backup()
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        under_way += os.waitpid(child, 0)[1] == signal.SIGKILL
        if not (tmp_path / "copy").exists():
            # Killed between two renames: the one before is aside, and the next backup brings it back first.
            assert (tmp_path / ".copy.old" / "backup.json").exists()
            with pytest.raises(FileError, match="interrupted"):
                Store.open(tmp_path / "copy")
        else:
            assert content(tmp_path / "copy") in known.values()
    assert under_way > 5
    with Store.open(tmp_path / "store", read_only=True) as store:
        store.backup(tmp_path / "copy")
    assert content(tmp_path / "copy") == list(known.values())[-1]
    assert leftovers(tmp_path) == []


def test_what_was_moved_aside_is_brought_back(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 10)
        store.backup(tmp_path / "copy")
        os.rename(tmp_path / "copy", tmp_path / ".copy.old")
        with pytest.raises(FileError, match=r"interrupted.*\.copy\.old"):
            Store.open(tmp_path / "copy")
        with pytest.raises(KeyboardInterrupt):
            store.backup(tmp_path / "copy", progress=interrupt)
    assert len(content(tmp_path / "copy")) == 10
    assert leftovers(tmp_path) == []


def interrupt(_done, _total):
    raise KeyboardInterrupt


def test_a_backup_never_replaces_something_else(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store, Store.create(tmp_path / "other", n_bits=64) as other:
        fill(store, 10)
        other.put([Item(1, code=CODES[0])])
        (tmp_path / "text").write_text("text")
        for place in ("other", "text", "store"):
            with pytest.raises(FileError, match="is no backup"):
                store.backup(tmp_path / place)
        for _ in range(3):
            other.put([Item(2, code=CODES[0])])
        other.backup(tmp_path / "copy")
        with pytest.raises(FileError, match="is a backup of change 4, and .* is at change 1"):
            store.backup(tmp_path / "copy")
    assert len(content(tmp_path / "copy")) == 2


def test_a_damaged_store_does_not_replace_its_backup(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 500)
        store.backup(tmp_path / "copy")
    file = tmp_path / "store" / "store.db"
    damaged = bytearray(file.read_bytes())
    place = damaged.index(b'"text":"xxxxx')
    damaged[place + 9] ^= 1
    file.write_bytes(damaged)
    with (
        Store.open(tmp_path / "store", read_only=True) as store,
        pytest.raises(CorruptFileError, match="nothing was put in place.*hamtarget repair"),
    ):
        store.backup(tmp_path / "copy")
    assert len(content(tmp_path / "copy")) == 500
    assert leftovers(tmp_path) == []


@pytest.mark.filterwarnings("ignore::hamtarget.errors.LostChangesWarning")
def test_a_store_that_lost_changes_does_not_replace_a_backup_that_may_hold_them(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 10)
    old = (tmp_path / "store" / "store.db").read_bytes()
    with Store.open(tmp_path / "store") as store:
        fill(store, 10, first=10)
        store.backup(tmp_path / "copy")
    (tmp_path / "store" / "store.db").write_bytes(old)
    with Store.open(tmp_path / "store", read_only=True) as store, pytest.raises(LostChangesError):
        store.backup(tmp_path / "copy")
    assert len(content(tmp_path / "copy")) == 20


def test_restore(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 300)
        store.backup(tmp_path / "copy")
        expected = content(tmp_path / "copy")
        fill(store, 300, first=300)
        for replace in (False, True):
            with pytest.raises(FileError if not replace else LockedError):
                Store.restore(tmp_path / "copy", tmp_path / "store", replace=replace)
    assert len(content(tmp_path / "store")) == 600
    report = Store.restore(tmp_path / "copy", tmp_path / "store", replace=True)
    assert (report.items, report.sequence) == (300, 1)
    assert content(tmp_path / "store") == expected
    assert not (tmp_path / "store" / "backup.json").exists()
    Store.restore(tmp_path / "copy", tmp_path / "elsewhere" / "store")
    with Store.open(tmp_path / "elsewhere" / "store") as store:
        fill(store, 1, first=300)
        assert store.verify().ok
    assert leftovers(tmp_path) == []


def test_a_damaged_backup_does_not_replace_a_store(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 300)
        store.backup(tmp_path / "copy")
    file = tmp_path / "copy" / "store.db"
    damaged = bytearray(file.read_bytes())
    damaged[damaged.index(b'"text":"xxxxx') + 9] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(CorruptFileError, match="damaged"):
        Store.restore(tmp_path / "copy", tmp_path / "store", replace=True)
    assert len(content(tmp_path / "store")) == 300
    assert leftovers(tmp_path) == []


def test_restore_replaces_a_store_that_cannot_be_opened_but_no_other_folder(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        fill(store, 30)
        store.backup(tmp_path / "copy")
    (tmp_path / "store" / "store.db").write_bytes(b"nothing")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"a")
    with pytest.raises(FileError, match="is not replaced"):
        Store.restore(tmp_path / "copy", tmp_path / "photos", replace=True)
    Store.restore(tmp_path / "copy", tmp_path / "store", replace=True)
    assert len(content(tmp_path / "store")) == 30


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
def test_the_encoder_goes_along_and_is_checked(tmp_path):
    import hamtarget
    from hamtarget.encoders import open_encoder

    demo = Path(hamtarget.__file__).parent / "serve" / "demo_encoder"
    with Store.create(tmp_path / "store", encoder=open_encoder(demo)) as store:
        store.put_rows([1], inputs=np.zeros((1, 28, 28), dtype=np.uint8))
        store.backup(tmp_path / "copy")
        with Store.open(tmp_path / "copy", read_only=True) as copy:
            assert copy.search(np.zeros((28, 28), dtype=np.uint8))[0].id == 1
        assert store.verify().ok
        shutil.rmtree(tmp_path / "store" / "encoder")
        (problem,) = store.verify().problems
        assert "encoder" in problem
        with pytest.raises(CorruptFileError, match="encoder"):
            store.backup(tmp_path / "copy")


SMALL = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from hamtarget.errors import WriteError
from test_store_backup import Store, content, fill, leftovers
folder = Path({folder!r})
with Store.create(folder / "store", n_bits=64) as store:
    fill(store, 1000)
    store.backup(folder / "copy")
    fill(store, 4000, first=1000)
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            pass
    for call in (lambda: store.backup(folder / "copy"), lambda: Store.restore(folder / "copy", folder / "new")):
        try:
            call()
        except WriteError as error:
            print("refused:", error)
    assert leftovers(folder) == [], leftovers(folder)
    filler.unlink()
    assert len(content(folder / "copy")) == 1000
    store.backup(folder / "copy")
    assert len(content(folder / "copy")) == 5000
"""


def test_a_backup_on_a_full_disk_is_a_typed_error_and_the_one_before_stays(tmp_path):
    told = run_on_small_disk(tmp_path, "12m", lambda disk: SMALL.format(here=str(HERE), folder=disk))
    assert told.count("refused:") == 2


FULL_COMPACT = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from hamtarget.errors import WriteError
from test_store_backup import Store, fill
folder = Path({folder!r})
for room in range(0, 1_200_000, 100_000):
    path = folder / f"store {{room}}"
    with Store.create(path, n_bits=64) as store:
        fill(store, 5000)
        store.compact()
        store.delete([row if row % 2 else f"name {{row}}" for row in range(3000)])
        filler = folder / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(16384))
            except OSError:
                pass
            file.truncate(max(0, file.tell() - room))
        try:
            store.compact()
            print("compacted")
        except WriteError as error:
            print("refused:", error)
        assert len(store) == 2000
        assert not list(path.glob("*.new*")), list(path.iterdir())
        filler.unlink()
        store.compact()
        assert store.verify().ok
    import shutil
    shutil.rmtree(path)
"""


def test_compact_on_a_full_disk_is_a_typed_error(tmp_path):
    """With room for the index or not, for the new database or not, for its log or not."""
    told = run_on_small_disk(tmp_path, "12m", lambda disk: FULL_COMPACT.format(here=str(HERE), folder=disk))
    assert told.count("refused:") >= 3
    assert "compacted" in told


def test_backups_of_postgresql_are_those_of_postgresql(postgres_stores, tmp_path):
    from hamtarget.errors import InputError

    with postgres_stores.create(n_bits=64) as store, pytest.raises(InputError, match="pg_dump"):
        store.backup(tmp_path / "copy")
