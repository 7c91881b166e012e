"""Measure how long a sync of a folder takes: the first one, one without changes, and one after pictures were moved.

    python -m research.benchmarks.folder_sync --pictures 100000 --out research/results/folder_sync.json

Pictures are small and random, so that the bookkeeping counts and not the decoding; `dhash` encodes them. With a folder
of your own (`--folder photos`), only the first two syncs are measured, and nothing in it is changed.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from hamtarget import Store, open_encoder
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.folders import sync_folder

_PER_FOLDER = 1000
_LONG_AGO = 1_600_000_000


def make_pictures(folder: Path, n_pictures: int, seed: int) -> None:
    """Write small grey pictures (PGM), a thousand in each folder, with times that lie long ago."""
    rng = np.random.default_rng(seed)
    for number in range(n_pictures):
        parent = folder / f"{number // _PER_FOLDER:04}"
        if number % _PER_FOLDER == 0:
            parent.mkdir(parents=True)
        path = parent / f"{number:07}.pgm"
        path.write_bytes(b"P5 16 16 255\n" + rng.integers(0, 256, 256, dtype=np.uint8).tobytes())
        os.utime(path, (_LONG_AGO, _LONG_AGO))


def measured(store: Store, folder: Path) -> dict[str, float]:
    """Return what a sync did and how long it took: by the clock, and of this process."""
    wall, own = time.perf_counter(), time.process_time()
    report = sync_folder(store, folder)
    return {
        "added": len(report.added),
        "moved": len(report.moved),
        "unchanged": report.unchanged,
        "seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - own, 2),
    }


def main() -> None:
    """Make a folder, sync it three times, and write what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--encoder", default="dhash")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        # A cache of its own: the first sync finds no code there.
        os.environ["HAMTARGET_CACHE"] = str(Path(place) / "cache")
        folder = options.folder or Path(place) / "photos"
        if options.folder is None:
            make_pictures(folder, options.pictures, options.seed)
        with Store.create(Path(place) / "store", encoder=open_encoder(options.encoder)) as store:
            result = {"first": measured(store, folder), "unchanged": measured(store, folder)}
            if options.folder is None:
                (folder / "0000").rename(folder / "renamed")
                result["renamed"] = measured(store, folder)
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
    print({**result, "peak_megabytes": peak})
    if options.out:
        facts = {"encoder": options.encoder, "peak_megabytes": peak, **provenance(seed=options.seed)}
        write_json(options.out, {**result, **facts})


if __name__ == "__main__":
    main()
