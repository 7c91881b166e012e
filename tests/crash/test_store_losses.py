"""Changes that were acknowledged and are gone are counted and told, and what is left of them is not thrown away."""

import shutil
import sqlite3
import warnings

import numpy as np
import pytest

from hamtarget.errors import LostChangesError, LostChangesWarning
from hamtarget.store import Item, Store
from hamtarget.store.sqlite.counter import read_counter

N_CHANGES = 20
CODES = np.random.default_rng(5).integers(0, 256, (N_CHANGES, 8), dtype=np.uint8)
FRAME = 24 + 4096
LOG = "store.db-wal"


def crashed_copy(tmp_path, **settings):
    """Return the folder of a store whose writer died after 20 changes, all of them in the log."""
    with Store.create(tmp_path / "first", n_bits=64, **settings) as store:
        for number in range(N_CHANGES):
            store.put([Item(number, code=CODES[number], payload={"n": number})])
        shutil.copytree(tmp_path / "first", tmp_path / "store")
    shutil.rmtree(tmp_path / "first")
    return tmp_path / "store"


def damage_log(path, *, share=0.5):
    """Flip a bit of a frame of the log; return the bytes that are there now."""
    content = bytearray((path / LOG).read_bytes())
    n_frames = (len(content) - 32) // FRAME
    content[32 + int(n_frames * share) * FRAME + 2000] ^= 1
    (path / LOG).write_bytes(content)
    return bytes(content)


@pytest.fixture
def damaged(tmp_path):
    path = crashed_copy(tmp_path)
    return path, damage_log(path)


def test_a_crash_without_damage_loses_nothing_and_warns_of_nothing(tmp_path):
    path = crashed_copy(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.open(path, read_only=True) as store:
            assert len(store) == N_CHANGES
        with Store.open(path) as store:
            assert len(store) == N_CHANGES
            assert store.verify().ok


def test_a_damaged_log_is_an_error_for_the_writer_and_stays_as_it_is(damaged):
    path, log = damaged
    for _ in range(2):
        with pytest.raises(
            LostChangesError, match=r"last 10 changes are missing.*copy the folder first.*repair"
        ) as told:
            Store.open(path)
        assert told.value.n_changes == 10
        assert (path / LOG).read_bytes() == log
        assert read_counter(path / "changes") == N_CHANGES


def test_a_reader_is_warned_and_verify_reports_it(damaged):
    path, log = damaged
    with pytest.warns(LostChangesWarning, match="last 10 changes are missing"):
        store = Store.open(path, read_only=True)
    with store:
        assert len(store) == 10
        report = store.verify()
    assert report.n_lost_changes == 10
    assert not report.ok
    assert "last 10 changes" in report.problems[0]
    assert (path / LOG).read_bytes() == log


def test_who_accepts_the_loss_keeps_the_evidence(damaged):
    path, log = damaged
    with pytest.warns(LostChangesWarning, match=r"kept in lost-changes-11-20\.wal"):
        store = Store.open(path, accept_loss=True)
    with store:
        store.put([Item("new", code=CODES[0])])
        assert len(store) == 11
        assert store.verify().ok
    assert (path / "lost-changes-11-20.wal").read_bytes() == log
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Store.open(path).close()


def test_evidence_of_another_time_is_not_overwritten(damaged):
    path, log = damaged
    (path / "lost-changes-11-20.wal").write_bytes(b"older")
    with pytest.warns(LostChangesWarning):
        Store.open(path, accept_loss=True).close()
    assert (path / "lost-changes-11-20.wal").read_bytes() == b"older"
    assert (path / "lost-changes-11-20 2.wal").read_bytes() == log


@pytest.mark.filterwarnings("ignore::hamtarget.errors.LostChangesWarning")
def test_wherever_the_log_is_damaged_the_loss_is_counted_exactly(tmp_path):
    whole = crashed_copy(tmp_path)
    n_frames = ((whole / LOG).stat().st_size - 32) // FRAME
    for place in range(0, n_frames, 7):
        path = tmp_path / f"at {place}"
        shutil.copytree(whole, path)
        log = damage_log(path, share=place / n_frames)
        with Store.open(path, read_only=True) as store:
            n_left = len(store)
        assert n_left < N_CHANGES
        with pytest.raises(LostChangesError) as told:
            Store.open(path)
        assert told.value.n_changes == N_CHANGES - n_left
        assert (path / LOG).read_bytes() == log


def test_a_missing_log_is_noticed(tmp_path):
    path = crashed_copy(tmp_path)
    (path / LOG).unlink()
    with pytest.raises(LostChangesError) as told:
        Store.open(path)
    assert told.value.n_changes == N_CHANGES


def test_an_older_database_beside_a_newer_counter_gets_the_same_advice(tmp_path):
    Store.create(tmp_path / "store", n_bits=64).close()
    old = (tmp_path / "store" / "store.db").read_bytes()
    with Store.open(tmp_path / "store") as store:
        store.put([Item(1, code=CODES[0])])
    (tmp_path / "store" / "store.db").write_bytes(old)
    with pytest.raises(LostChangesError, match=r"the last change is missing.*an older store\.db"):
        Store.open(tmp_path / "store")


def test_with_durability_os_a_loss_is_a_warning_because_the_contract_allows_it(tmp_path):
    path = crashed_copy(tmp_path, durability="os")
    log = damage_log(path)
    with pytest.warns(LostChangesWarning, match="last 10 changes"):
        store = Store.open(path)
    with store:
        assert len(store) == 10
    assert (path / "lost-changes-11-20.wal").read_bytes() == log


@pytest.mark.parametrize("bit", range(0, 128, 9))
def test_a_flipped_bit_of_the_counter_is_no_false_alarm(tmp_path, bit):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put([Item(1, code=CODES[0])])
    file = tmp_path / "store" / "changes"
    content = bytearray(file.read_bytes())
    assert len(content) == 16
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.open(tmp_path / "store", read_only=True) as store:
            assert store.verify().ok
        Store.open(tmp_path / "store").close()
    assert read_counter(file) == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 16, b"short", None])
def test_a_counter_that_is_no_counter_is_made_anew(tmp_path, content):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put([Item(1, code=CODES[0])])
    file = tmp_path / "store" / "changes"
    file.unlink() if content is None else file.write_bytes(content)
    with Store.open(tmp_path / "store") as store:
        assert store.verify().ok
    assert read_counter(file) == 1


def test_a_reader_beside_a_busy_writer_is_never_alarmed(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(60):
            store.put([Item(number, code=CODES[0])])
            with Store.open(tmp_path / "store", read_only=True) as reader:
                assert reader.verify().n_lost_changes == 0


def test_there_is_one_writing_connection_at_a_time(tmp_path, monkeypatch):
    """Before SQLite 3.51.3, two of them could damage the database."""
    opened = []
    connect = sqlite3.connect

    def recording(address, *arguments, **options):
        opened.append(address)
        return connect(address, *arguments, **options)

    Store.create(tmp_path / "store", n_bits=64).close()
    monkeypatch.setattr(sqlite3, "connect", recording)
    with Store.open(tmp_path / "store") as store, Store.open(tmp_path / "store", read_only=True) as reader:
        store.put([Item(1, code=CODES[0])])
        assert store.get([1])[0].id == reader.get([1])[0].id
        store.compact()
        assert store.verify().ok
        assert reader.verify().ok
    writing = [address for address in opened if "store.db" in address and "mode=ro" not in address]
    assert len(writing) == 1
