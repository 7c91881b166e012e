"""A loss of power at any moment loses nothing that was acknowledged, and leaves nothing half there.

power_trace.c records what a workload does to its files; power_disk.py replays every beginning of it and draws states
that the disk may be in after a loss of power at that moment; each distinct state is written to a folder and opened.
HAMTARGET_CRASH_POINTS sets how many states are wanted of a store; `make soak` wants 10,000.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from power_disk import MARK, Disk, images_of, read_trace
from power_workloads import POINTS, WORKLOADS

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD and /proc are Linux's")


@pytest.fixture(scope="module")
def tracer(tmp_path_factory):
    """The library that records, made by the system's C compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("NO C COMPILER: the loss of power is NOT TESTED; install one (cc, gcc or clang)")
    library = tmp_path_factory.mktemp("tracer") / "power_trace.so"
    source = str(HERE / "power_trace.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
    return library


@pytest.fixture
def scratch():
    """A folder in memory, where there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="hamtarget-power-") as folder:
        yield Path(folder)


def traced(name, tracer, scratch, **environment):
    """Return the records of a workload, run in a process of its own."""
    root, trace = scratch / "traced", scratch / "trace"
    root.mkdir()
    environment |= {**os.environ, "LD_PRELOAD": str(tracer), "POWER_ROOT": str(root), "POWER_TRACE": str(trace)}
    command = [sys.executable, str(HERE / "power_workloads.py"), name, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = read_trace(trace, root)
    # Else the recorder has missed something.
    assert image_after(records) == image_at(root)
    return records


def image_after(records):
    """Return what is there if no power is lost."""
    disk = Disk()
    for record in records:
        disk.replay(record)
    return disk.image(share=1)


def image_at(root):
    """Return what is in a folder, as `Disk.image` does."""
    paths = [path for path in root.rglob("*") if not path.name.endswith("-shm")]
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in paths}


class Judge:
    """Opens states, and compares what is there with what must be there.

    Attributes:
        n_states: distinct states that were opened.
        n_points: pairs of a moment and a state.
        failures: what was wrong, a line for each point.
    """

    def __init__(self, workload, folder):
        self._workload = workload
        self._folder = folder
        self._expected = workload.states()
        self._verdicts = {}
        self.n_points = 0
        self.failures = []

    @property
    def n_states(self):
        return len(self._verdicts)

    def judge(self, image, moment, allowed):
        """Note a failure unless the image is, as a whole, in one of the allowed states.

        Args:
            image: contents by path.
            moment: number of operations that were done.
            allowed: numbers of the steps after which the state may be.
        """
        self.n_points += 1
        digest = hashlib.blake2b(repr(sorted(image)).encode())
        for path in sorted(image):
            digest.update(hashlib.blake2b(image[path] or b"").digest())
        key = digest.digest()
        if key not in self._verdicts:
            self._verdicts[key] = self._opened(image)
        found, problem = self._verdicts[key]
        if problem or found.isdisjoint(allowed):
            told = problem or f"found the state after one of steps {sorted(found)}"
            self.failures.append(f"after operation {moment}: {told}; expected that after one of {sorted(allowed)}")

    def _opened(self, image):
        """Return the steps after which the state is as it is in an image, and what is wrong with it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        for path, content in sorted(image.items()):
            if content is None:
                (self._folder / path).mkdir()
            else:
                (self._folder / path).write_bytes(content)
        try:
            found = self._workload.found(self._folder, self.n_states)
        except Exception as error:
            return frozenset(), f"{type(error).__name__}: {error}"
        steps = frozenset(step for step, state in enumerate(self._expected) if state == found)
        return steps, "" if steps else "a state that was never there"


def replayed(name, records, folder, *, samples, lies=lambda of_folder: False, keeps_all=True, every=1):
    """Return a judge that has seen every moment of a record.

    Args:
        name: of the workload.
        records: what it did.
        folder: where states are written and opened.
        samples: random states at each moment, besides those that are always looked at.
        lies: as of `Disk`.
        keeps_all: False if the last steps may be lost, though they were acknowledged.
        every: how many operations lie between two moments.
    """
    judge = Judge(WORKLOADS[name](Path()), folder)
    disk = Disk(lies)
    begun = done = 0
    for moment, record in enumerate(records, 1):
        disk.replay(record)
        if record.kind == MARK:
            begun += record.path == "begin"
            done += record.path == "done"
        if moment % every and record.kind != MARK:
            continue
        for image in images_of(disk, samples, seed=moment):
            # Whatever is not waited for, the store itself is there once it was created.
            oldest = done if keeps_all else min(done, 1)
            judge.judge(image, moment, set(range(oldest, begun + 1)))
    return judge


def tell(name, judge, records):
    found = f"{judge.n_points:,} crash points, {judge.n_states:,} distinct states, {len(judge.failures):,} failures"
    sys.stdout.write(f"{name}: {len(records):,} operations, {found}\n")


@pytest.mark.slow
def test_a_store_loses_nothing_that_was_acknowledged(tracer, scratch):
    records = traced("Stores", tracer, scratch)
    judge = replayed("Stores", records, scratch / "state", samples=max(1, POINTS // 2000))
    tell("Stores", judge, records)
    assert judge.failures == []
    assert judge.n_states >= POINTS


@pytest.mark.slow
def test_a_store_that_does_not_wait_keeps_the_first_changes_and_no_others(tracer, scratch):
    records = traced("RelaxedStores", tracer, scratch)
    judge = replayed("RelaxedStores", records, scratch / "state", samples=POINTS // 4000, keeps_all=False, every=2)
    tell("RelaxedStores", judge, records)
    assert judge.failures == []
    assert judge.n_states >= POINTS / 4


@pytest.mark.slow
def test_a_backup_is_the_old_or_the_new_one_and_so_is_what_it_brings_back(tracer, scratch):
    records = traced("Backups", tracer, scratch)
    judge = replayed("Backups", records, scratch / "state", samples=POINTS // 2000, every=1 if POINTS > 2000 else 3)
    tell("Backups", judge, records)
    assert judge.failures == []
    assert judge.n_states >= POINTS / 20


@pytest.mark.parametrize("named", [False, True])
def test_a_saved_index_is_the_old_or_the_new_one(tracer, scratch, named):
    records = traced("Indexes", tracer, scratch, **({"POWER_NAMED": "1"} if named else {}))
    assert ("t" in {record.kind for record in records}) is not named
    judge = replayed("Indexes", records, scratch / "state", samples=POINTS // 100)
    tell("Indexes", judge, records)
    assert judge.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Encoders", "StoresWithEncoders"])
def test_a_saved_encoder_is_whole(tracer, scratch, name):
    records = traced(name, tracer, scratch)
    judge = replayed(name, records, scratch / "state", samples=POINTS // 1000)
    tell(name, judge, records)
    assert judge.failures == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lies"),
    [
        ("Stores", lambda of_folder: True),
        ("Stores", lambda of_folder: of_folder),
        ("Stores", lambda of_folder: not of_folder),
        ("CarelessStores", lambda of_folder: False),
    ],
    ids=["forgets all", "forgets names", "forgets contents", "SQLite does not ask"],
)
def test_a_disk_that_lies_is_noticed(tracer, scratch, name, lies):
    """The tests above can fail: where an fsync does nothing, or is not called, they do."""
    records = traced(name, tracer, scratch)
    judge = replayed(name, records, scratch / "state", samples=1, lies=lies, every=20)
    tell(name, judge, records)
    assert len(judge.failures) > 50
