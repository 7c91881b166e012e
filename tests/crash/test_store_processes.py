"""One process writes, others read: each acknowledged change is seen at once, and a second writer is refused at once."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from hamtarget.errors import LockedError
from hamtarget.store import Item, Store

CODES = np.random.default_rng(3).integers(0, 256, (200, 8), dtype=np.uint8)

WRITER = """
import sys
import numpy as np
from hamtarget.store import Item, Store
codes = np.random.default_rng(3).integers(0, 256, (200, 8), dtype=np.uint8)
with Store.open(sys.argv[1]) as store:
    print("ready", flush=True)
    for line in sys.stdin:
        verb, number = line.split()
        number = int(number)
        if verb == "put":
            store.put([Item(number, code=codes[number]), Item(f"{number}", code=codes[number])])
        elif verb == "delete":
            store.delete([number])
        else:
            store.compact()
        print("done", flush=True)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that writes, and a function that tells it what, and waits until it has done it."""
    Store.create(tmp_path / "store", n_bits=64).close()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"

    def tell(verb, number=0):
        process.stdin.write(f"{verb} {number}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    yield process, tell
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=30)


def test_readers_see_every_acknowledged_change(tmp_path, writer):
    _, tell = writer
    with Store.open(tmp_path / "store", read_only=True) as reader:
        for number in range(100):
            tell("put", number)
            assert [hit.id for hit in reader.search(code=CODES[number])] == [number, f"{number}"]
            if number % 3 == 0:
                tell("delete", number)
                assert [hit.id for hit in reader.search(code=CODES[number])] == [f"{number}"]
            if number % 40 == 20:
                tell("compact")
        assert len(reader) == 200 - 34
        assert reader.verify().ok


def test_a_second_writer_is_refused_at_once_and_may_come_when_the_first_is_dead(tmp_path, writer):
    process, tell = writer
    tell("put", 1)
    with pytest.raises(LockedError, match=f"written by process {process.pid};"):
        Store.open(tmp_path / "store")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    with Store.open(tmp_path / "store") as store:
        assert sorted(map(str, (item.id for item in store.scan()))) == ["1", "1"]
        store.put([Item("later", code=CODES[5])])
        assert store.verify().ok
