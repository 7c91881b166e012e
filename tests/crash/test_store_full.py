"""A full disk, an interrupt, a fork: what was acknowledged stays, what failed has changed nothing."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from small_disk import run_on_small_disk

from hamtarget.errors import ClosedError, WriteError
from hamtarget.store import Item, Store
from hamtarget.store.sqlite import engine

HERE = Path(__file__).parent
RNG = np.random.default_rng(2)
CODES = RNG.integers(0, 256, (20_000, 8), dtype=np.uint8)


def rows(first, past):
    """Rows of about a kilobyte each."""
    payloads = [{"text": f"{number:01000}"} for number in range(first, past)]
    return {"ids": range(first, past), "codes": CODES[first:past], "payloads": payloads}


def check(store, n_rows):
    """Nothing, if the store holds exactly the first `n_rows` rows."""
    assert len(store) == n_rows
    for number, item in enumerate(store.scan()):
        assert item.id == number
        assert item.payload == {"text": f"{number:01000}"}
    assert store.search_batch(codes=CODES[:n_rows], radius=0).ids.tolist() == list(range(n_rows))
    report = store.verify()
    assert report.ok, report.problems


@pytest.fixture
def file_size_limit():
    """Sets the longest file that this process may write; Python turns the signal into an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_put_that_does_not_fit_changes_nothing(tmp_path, file_size_limit):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(**rows(0, 500))
        file_size_limit(1_500_000)
        with pytest.raises(WriteError, match="nothing was changed"):
            store.put_rows(**rows(500, 5000))
        check(store, 500)
        file_size_limit(resource.RLIM_INFINITY)
        store.put_rows(**rows(500, 600))
        check(store, 600)
    with Store.open(tmp_path / "store") as store:
        check(store, 600)


def test_a_transaction_in_which_the_disk_was_full_commits_nothing(tmp_path, file_size_limit):
    """Even if the program goes on as if nothing had happened."""

    def write():
        with store.transaction():
            store.put_rows(**rows(100, 200))
            file_size_limit(600_000)
            with pytest.raises(WriteError):
                store.put_rows(**rows(200, 5000))
            file_size_limit(resource.RLIM_INFINITY)
            store.put_rows(**rows(200, 210))

    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(**rows(0, 100))
        # A small cache: the database writes before the commit.
        store._engine._connection.execute("PRAGMA cache_size = 20")
        try:
            write()
            n_rows = 210
        except WriteError:
            n_rows = 100
        check(store, n_rows)
    with Store.open(tmp_path / "store") as store:
        check(store, n_rows)


def test_an_index_that_cannot_be_saved_costs_nothing_but_time(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_UNSAVED_ROWS", 100)
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(**rows(0, 50))

        def fail(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("hamtarget.search.MultiIndex.save", fail)
            store.put_rows(**rows(50, 300))
            check(store, 300)
    with Store.open(tmp_path / "store") as store:
        check(store, 300)


FULL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_store_full import CODES, Store, WriteError, check, rows
path = Path({folder!r}) / "store"
filler = path.with_name("filler")
filler.write_bytes(bytes(4_000_000))
store = Store.create(path, n_bits=64)
done = 0
try:
    while True:
        store.put_rows(**rows(done, done + 50))
        done += 50
except WriteError as error:
    print(error)
assert done
check(store, done)
store.close()
with Store.open(path) as store:
    check(store, done)
    filler.unlink()
    store.delete(range(done - 20, done))
    store.compact()
    check(store, done - 20)
"""


def test_a_full_disk_is_an_error_and_everything_before_it_stays(tmp_path):
    told = run_on_small_disk(tmp_path, "8m", lambda disk: FULL_DISK.format(here=str(HERE), folder=disk))
    assert "nothing was changed" in told


@pytest.mark.parametrize("moment", ["put", "commit", "index"])
def test_an_interrupt_leaves_the_store_and_its_index_in_step(tmp_path, monkeypatch, moment):
    """Ctrl-C while rows are written, right after the commit, or while the index follows."""
    calls = []

    def interrupted(original):
        def call(*arguments, **options):
            calls.append(1)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(**rows(0, 10))
        with monkeypatch.context() as patch:
            if moment == "put":
                patch.setattr("hamtarget.store.sqlite.tables.writing.write_items", interrupted(rows))
            elif moment == "commit":
                # `apply` comes right after the commit.
                patch.setattr(store._engine._live, "apply", interrupted(store._engine._live.apply))
            else:
                patch.setattr(store._engine._live, "_put", interrupted(store._engine._live._put))
            with pytest.raises(KeyboardInterrupt):
                store.put_rows(**rows(10, 20))
        check(store, 10 if moment == "put" else 20)
        store.put_rows(**rows(10, 30))
        check(store, 30)


@pytest.mark.parametrize("moment", ["commit", "index"])
def test_a_second_interrupt_during_the_repair_of_the_first_is_repaired_later(tmp_path, monkeypatch, moment):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for read_first in (True, False):
        with Store.create(tmp_path / f"{moment} {read_first}", n_bits=64) as store:
            store.put_rows(**rows(0, 10))
            with monkeypatch.context() as patch:
                patch.setattr(store._engine._live, "apply" if moment == "commit" else "_put", interrupted)
                patch.setattr(store._engine, "_undo", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    store.put_rows(**rows(10, 20))
            if read_first:
                assert store.search_batch(codes=CODES[:20], radius=0).ids.tolist() == list(range(20))
                check(store, 20)
            store.put_rows(**rows(20, 30))
            check(store, 30)


def test_a_reader_that_was_interrupted_while_it_followed_follows_again(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with Store.create(tmp_path / "store", n_bits=64) as store, Store.open(tmp_path / "store", read_only=True) as reader:
        store.put_rows(**rows(0, 10))
        check(reader, 10)
        store.put_rows(**rows(10, 20))
        with monkeypatch.context() as patch:
            patch.setattr(reader._engine._live, "_put", interrupted)
            with pytest.raises(KeyboardInterrupt):
                reader.search(code=CODES[0])
        assert reader.search_batch(codes=CODES[:20], radius=0).ids.tolist() == list(range(20))
        check(reader, 20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_cannot_use_the_store_of_its_parent(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store, Store.open(tmp_path / "store", read_only=True) as reader:
        store.put_rows(**rows(0, 10))
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (
                lambda: store.put([Item(1, code=CODES[0])]),
                lambda: store.search(code=CODES[0]),
                lambda: reader.search(code=CODES[0]),
                lambda: len(reader),
            ):
                try:
                    call()
                except ClosedError:
                    refused += 1
            store.close()
            reader.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        store.put_rows(**rows(10, 20))
        check(store, 20)
        assert len(reader) == 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_that_lives_on_does_not_hold_the_lock(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=64)
    waiting, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(waiting, 1)
        os._exit(0)
    store.close()
    Store.open(tmp_path / "store").close()
    os.close(go)
    os.waitpid(child, 0)
    os.close(waiting)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_after_closing_closes_no_file_of_others(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=64)
    store.close()
    # Take the numbers that the store's files had.
    handles = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    child = os.fork()
    if child == 0:
        try:
            for handle in handles:
                os.fstat(handle)
            os._exit(0)
        except OSError:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for handle in handles:
        os.close(handle)
