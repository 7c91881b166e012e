"""Changes files as a user does, while power_trace.c records it: `python power_workloads.py WORKLOAD FOLDER`.

A workload is a number of steps. Each is announced before it begins, and once it has returned; what is there after each
step follows from its number, so that the process that replays the record (test_power.py) knows what must be there.
"""

import ctypes
import json
import os
import random
import sys
import warnings
from pathlib import Path

import numpy as np

N_BITS = 64
POINTS = int(os.environ.get("HAMTARGET_CRASH_POINTS", "2000"))


def announce(text):
    """Write a note into the trace."""
    ctypes.CDLL(None).power_mark(text.encode())


class Stores:
    """A store in folders that are not there yet: created, changed, compacted, closed and opened again."""

    n_steps = 32 if POINTS <= 2000 else 120
    durability = "full"

    def __init__(self, root):
        self.path = root / "new" / "folders" / "store"

    def prepare(self):
        """Make everything happen often that a large store does rarely: saves of the index, checkpoints of the log."""
        from hamtarget.store.sqlite import engine
        from hamtarget.store.sqlite.tables import database

        engine._UNSAVED_ROWS = 40
        database._LOG_PAGES = 40

    @staticmethod
    def kind(step):
        """Return what a step does."""
        if step == 0:
            return "create"
        rng = random.Random(step)
        # A delete of nearly all comes before, so that there is something to give back.
        if step % 30 == 29:
            return "clear"
        if step % 30 in (0, 12):
            return "compact"
        return rng.choices(["put", "delete", "transaction", "reopen"], [50, 20, 20, 10])[0]

    @staticmethod
    def rows(step):
        """Return (ids, codes, payloads) that a step puts, and ids that it deletes."""
        rng = random.Random(step)
        ids = [number if number < 30 else f"name {number}" for number in rng.sample(range(60), rng.choice([1, 2, 25]))]
        codes = [rng.randbytes(N_BITS // 8) for _ in ids]
        payloads = [{"step": step, "text": "x" * rng.choice([1, 20, 300, 300, 9000])} for _ in ids]
        gone = [number if number < 30 else f"name {number}" for number in rng.sample(range(60), rng.choice([1, 10]))]
        return ids, codes, payloads, gone

    def states(self):
        """Return what must be there before and after each step: None, or items by id."""
        found = [None]
        for step in range(self.n_steps):
            items = dict(found[-1] or {})
            ids, codes, payloads, gone = self.rows(step)
            kind = self.kind(step)
            if kind in ("put", "transaction"):
                items.update(zip(ids, zip(codes, map(json.dumps, payloads), strict=True), strict=True))
            if kind in ("delete", "transaction"):
                items = {id: item for id, item in items.items() if id not in gone}
            if kind == "clear":
                items = dict(list(items.items())[:2])
            found.append(items)
        return found

    def run(self):
        """Do all steps."""
        from hamtarget.store import Store

        self.prepare()
        expected = self.states()
        for step in range(self.n_steps):
            announce("begin")
            kind = self.kind(step)
            ids, codes, payloads, gone = self.rows(step)
            rows = np.array([list(code) for code in codes], dtype=np.uint8)
            if kind == "create":
                store = Store.create(self.path, n_bits=N_BITS, radius=2, durability=self.durability)
            elif kind == "put":
                store.put_rows(ids, codes=rows, payloads=payloads)
            elif kind == "delete":
                store.delete(gone)
            elif kind == "clear":
                store.delete([id for id in expected[step] if id not in expected[step + 1]])
            elif kind == "compact":
                store.compact()
            elif kind == "reopen":
                store.close()
                store = Store.open(self.path)
            else:
                with store.transaction():
                    store.put_rows(ids, codes=rows, payloads=payloads)
                    store.delete(gone)
            announce("done")
        store.close()

    def found(self, root, step):
        """Return what is there, after checking that it is whole; opened twice, for reading and for writing.

        Raises:
            Exception: it is not.
        """
        return items_of(root / self.path, step, may_lose=self.durability == "os")


def items_of(path, number, *, may_lose=False):
    """Return the items of a store, None where there is none, after checking that it is whole.

    It is opened twice, for reading and for writing, by turns in either order. If the last changes may be lost,
    `verify` may say so, and nothing else.

    Raises:
        Exception: it is not whole.
    """
    from hamtarget.store import Store

    if not path.exists():
        return None
    seen = []
    for read_only in (number % 2 == 0, number % 2 == 1):
        with Store.open(path, read_only=read_only) as store:
            items = {item.id: (bytes(item.code), json.dumps(item.payload)) for item in store.scan()}
            report = store.verify()
            is_told = may_lose and report.n_lost_changes > 0
            assert report.n_problems == is_told, report.problems
            for id in sorted(items, key=str)[::5]:
                hits = store.search(code=np.frombuffer(items[id][0], np.uint8), radius=0)
                assert id in [hit.id for hit in hits], f"{id!r} is not found"
            seen.append(items)
    assert seen[0] == seen[1], "the second opening finds something else than the first"
    return seen[0]


class RelaxedStores(Stores):
    """The same with durability="os"."""

    durability = "os"

    def found(self, root, step):
        """Return what is there; that the last changes are missing is told by a warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return super().found(root, step)


class CarelessStores(Stores):
    """The same by a SQLite that waits for no disk."""

    def prepare(self):
        """Let no commit reach the disk."""
        from hamtarget.store.sqlite.tables import database

        super().prepare()
        database._SYNCHRONOUS = {"full": "OFF", "os": "OFF"}


class Backups:
    """A store that is backed up, twice, to new folders, and brought back: beside itself, and in its place."""

    n_steps = 8

    def __init__(self, root):
        self.places = {
            "store": root / "store",
            "copy": root / "far" / "away" / "copy",
            "other": root / "some" / "other",
        }

    @staticmethod
    def rows(version):
        """Return (ids, codes) of a version."""
        rng = random.Random(version)
        ids = [f"name {number}" for number in rng.sample(range(40), 12)]
        return ids, [rng.randbytes(N_BITS // 8) for _ in ids]

    def states(self):
        """Return what is in each place before and after each step."""
        first, second, third = ({id: (code, "null") for id, code in zip(*self.rows(n), strict=True)} for n in range(3))
        third, second = first | second | third, first | second
        found = [{"store": None, "copy": None, "other": None}, {"store": first}, {"copy": first}, {"store": second}]
        # Backed up again, changed, and brought back: beside, and in its place.
        found += [{"copy": second}, {"store": third}, {"other": second}, {"store": second}, {"other": second}]
        for before, after in zip(found, found[1:], strict=False):
            after.update({**before, **after})
        return found

    def run(self):
        """Do all steps."""
        from hamtarget.store import Store

        def put(version):
            ids, codes = self.rows(version)
            store.put_rows(ids, codes=np.array([list(code) for code in codes], dtype=np.uint8))

        store = Store.create(self.places["store"], n_bits=N_BITS, radius=2)
        steps = [
            lambda: put(0),
            lambda: store.backup(self.places["copy"]),
            lambda: put(1),
            lambda: store.backup(self.places["copy"]),
            lambda: put(2),
            lambda: Store.restore(self.places["copy"], self.places["other"]),
            lambda: [store.close(), Store.restore(self.places["copy"], self.places["store"], replace=True)],
            lambda: Store.restore(self.places["copy"], self.places["other"], replace=True),
        ]
        for step in steps:
            announce("begin")
            step()
            announce("done")

    def found(self, root, step):
        """Return what is in each place; what was being replaced may be aside, as the error of opening says."""
        from hamtarget.store.sqlite.folders import moved_aside

        found = {}
        for name, place in self.places.items():
            found[name] = items_of(moved_aside(root / place) or root / place, step)
            # Of the creation, another test tells.
            found[name] = None if found[name] == {} else found[name]
        return found


class Indexes:
    """An index that is saved again and again under one name."""

    n_steps = 8

    def __init__(self, root):
        self.path = root / "codes.ham"

    @staticmethod
    def index(version):
        """Return the index of a version."""
        from hamtarget.search import MultiIndex

        rng = np.random.default_rng(version)
        index = MultiIndex(N_BITS, radius=2)
        index.add(np.arange(50 + version), rng.integers(0, 256, (50 + version, 8), dtype=np.uint8))
        return index

    def states(self):
        """Return the rows of each version."""
        return [None, *(self.index(step).get(np.arange(50 + step)).tobytes() for step in range(self.n_steps))]

    def run(self):
        """Save all versions."""
        for step in range(self.n_steps):
            index = self.index(step)
            announce("begin")
            index.save(self.path)
            announce("done")

    def found(self, root, step):
        """Return the rows of the index that is there."""
        from hamtarget.search import MultiIndex

        if not (root / self.path).exists():
            return None
        index = MultiIndex.open(root / self.path, mmap=step % 2 == 0)
        return index.get(np.arange(len(index))).tobytes()


class Encoders:
    """An encoder that is learned, saved, learned anew and saved in its place, each time with an export."""

    n_steps = 4

    def __init__(self, root):
        self.path = root / "new" / "model"

    @staticmethod
    def inputs():
        """Return a few vectors."""
        return np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)

    @staticmethod
    def encoder(version):
        """Return the encoder of a version: random, but the same each time."""
        from hamtarget.learn import HashEncoder, TrainingOptions

        training = TrainingOptions(steps=2, batch_size=16)
        return HashEncoder(n_bits=16, seed=version, training=training).fit(Encoders.inputs())

    def states(self):
        """Return the codes that each version gives."""
        first, second = (self.encoder(version).encode(self.inputs()).tobytes() for version in (0, 1))
        return [None, first, first, second, second]

    def run(self):
        """Save both versions."""
        for version in (0, 1):
            encoder = self.encoder(version)
            announce("begin")
            encoder.save(self.path)
            announce("done")
            announce("begin")
            encoder.export_onnx(self.path / "model.onnx")
            announce("done")

    def found(self, root, step):
        """Return the codes that the encoder gives that is there."""
        from hamtarget.encoders import open_encoder

        folder = root / self.path
        if not any((folder / name).exists() for name in ("model.safetensors", "model.onnx")):
            return None
        return open_encoder(folder).encode(self.inputs()).tobytes()


class StoresWithEncoders:
    """A store that is created with an encoder, in folders that are not there yet."""

    n_steps = 1

    def __init__(self, root):
        self.path = root / "other" / "folders" / "store"

    @staticmethod
    def encoder():
        """Return the encoder that comes with the package."""
        from hamtarget.serve.demo_store import demo_encoder

        return demo_encoder()

    @staticmethod
    def inputs():
        """Return a few images."""
        return np.random.default_rng(1).integers(0, 256, (3, 28, 28))

    def states(self):
        """Return the codes of the encoder."""
        return [None, self.encoder().encode(self.inputs()).tobytes()]

    def run(self):
        """Create the store."""
        from hamtarget.store import Store

        encoder = self.encoder()
        announce("begin")
        store = Store.create(self.path, encoder=encoder, radius=2)
        announce("done")
        store.close()

    def found(self, root, step):
        """Return the codes of the store's encoder."""
        from hamtarget.store import Store

        if not (root / self.path).exists():
            return None
        with Store.open(root / self.path, read_only=step % 2 == 0) as store:
            assert store.verify().ok
            assert len(store) == 0
            return store.encoder.encode(self.inputs()).tobytes()


_ALL = (Stores, RelaxedStores, CarelessStores, Backups, Indexes, Encoders, StoresWithEncoders)
WORKLOADS = {kind.__name__: kind for kind in _ALL}


if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](Path(sys.argv[2])).run()
