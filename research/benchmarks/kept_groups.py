"""Measure what groups that are kept add to the time of puts and deletes, and how long giant groups take.

    python -m research.benchmarks.kept_groups --rows 1000000 --out research/results/kept_groups.json

All rows are in groups, of three on average. Two stores take the same 1,000 rows in turns: a plain one, and one that is
then asked for the first page of its groups. Of the new rows, half are near grouped ones, the others near nothing. The
giant groups are ten codes of a tenth of the rows each, one bit apart from the next.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.store import Store
from hamtarget.store.groups.results import Linkage

N_CHANGED = 1000
BATCH = 50_000
PAGE = {"limit": 50, "members": 100}

Codes = NDArray[np.uint8]
Times = dict[str, list[float]]


def grouped_codes(n_rows: int, n_bits: int, rng: np.random.Generator) -> Codes:
    """Return codes in groups of about three: each is a centre with at most one bit changed."""
    centres = rng.integers(0, 256, (max(1, n_rows // 3), n_bits // 8), dtype=np.uint8)
    return flipped(centres[rng.integers(0, len(centres), n_rows)], rng)


def flipped(codes: Codes, rng: np.random.Generator) -> Codes:
    """Return codes of which every second has one bit changed."""
    made = codes.copy()
    chosen = np.arange(0, len(codes), 2)
    bits = rng.integers(0, 8 * codes.shape[1], len(chosen))
    made[chosen, bits // 8] ^= (1 << bits % 8).astype(np.uint8)
    return made


def fill(path: Path, codes: Codes, radius: int) -> Store:
    """Return a new store of the codes."""
    store = Store.create(path, n_bits=8 * codes.shape[1], radius=radius)
    for start in range(0, len(codes), BATCH):
        block = codes[start : start + BATCH]
        store.put_rows(np.arange(start, start + len(block)), codes=block)
    store.compact()
    return store


def took(times: Times, name: str, call: Callable[[], Any]) -> Any:
    """Note how long a call takes, by the clock and by the processor, and return what it returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    times.setdefault(name, []).append(time.perf_counter() - wall)
    times.setdefault(f"{name}_cpu", []).append(time.process_time() - cpu)
    return result


def measure_changes(
    folder: Path, codes: Codes, radius: int, linkage: Linkage, rounds: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Return medians of the times of puts and deletes, plain and with groups."""
    times: Times = {}
    with fill(folder / "plain", codes, radius) as plain, fill(folder / "grouped", codes, radius) as store:
        found = took(times, "made_anew", lambda: store.groups(linkage=linkage, **PAGE))
        n_rows = len(codes)
        for number in range(rounds + 1):
            near = flipped(codes[rng.integers(0, len(codes), N_CHANGED // 2)], rng)
            far = rng.integers(0, 256, (N_CHANGED - len(near), codes.shape[1]), dtype=np.uint8)
            new = np.concatenate((near, far))
            ids = np.arange(n_rows, n_rows + N_CHANGED)
            n_rows += N_CHANGED
            gone = rng.choice(len(codes), N_CHANGED, replace=False)
            noted: Times = {} if number == 0 else times
            took(noted, "plain_put", lambda: plain.put_rows(ids, codes=new))  # noqa: B023
            took(noted, "put", lambda: store.put_rows(ids, codes=new))  # noqa: B023
            took(noted, "groups_after_put", lambda: store.groups(linkage=linkage, **PAGE))
            took(noted, "plain_delete", lambda: plain.delete(gone))  # noqa: B023
            took(noted, "delete", lambda: store.delete(gone))  # noqa: B023
            took(noted, "groups_after_delete", lambda: store.groups(linkage=linkage, **PAGE))
        medians = {name: statistics.median(each) for name, each in times.items()}
        size = sum(file.stat().st_size for file in (folder / "grouped" / "groups").iterdir())
    for change in ("put", "delete"):
        for unit in ("", "_cpu"):
            with_groups = medians[f"{change}{unit}"] + medians[f"groups_after_{change}{unit}"]
            medians[f"{change}_ratio{unit}"] = with_groups / medians[f"plain_{change}{unit}"]
    for name in ("plain", "grouped"):
        shutil.rmtree(folder / name)
    return {"n_groups": found.n_groups, "n_items": found.n_items, "groups_bytes": size, **medians}


def measure_giants(folder: Path, n_rows: int, n_bits: int, radius: int) -> dict[str, Any]:
    """Return the times of giant groups: made, followed after one more code, and a page of their members."""
    ten = np.packbits(np.arange(n_bits) < np.arange(10)[:, None], axis=1, bitorder="little")
    times: Times = {}
    with fill(folder / "giants", np.repeat(ten, n_rows // 10, axis=0), radius) as store:
        (group,) = took(times, "made_anew", lambda: store.groups(**PAGE)).groups
        another = np.packbits(np.arange(n_bits) < 10, bitorder="little")[None]
        store.put_rows([n_rows], codes=another)
        took(times, "groups_after_put", lambda: store.groups(**PAGE))
        store.delete([5])
        took(times, "groups_after_delete", lambda: store.groups(**PAGE))
        took(times, "members", lambda: store.group_members(group.id, start=n_rows // 2))
    shutil.rmtree(folder / "giants")
    return {"size": group.size, "is_capped": group.is_capped, **{name: each[0] for name, each in times.items()}}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--radius", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--linkages", nargs="+", default=["single", "representative"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    codes = grouped_codes(options.rows, options.bits, rng)
    result: dict[str, Any] = {"rows": options.rows, "bits": options.bits, "radius": options.radius}
    with tempfile.TemporaryDirectory() as folder:
        for linkage in options.linkages:
            result[linkage] = measure_changes(
                Path(folder), codes, options.radius, linkage, options.rounds, np.random.default_rng(1)
            )
            print(linkage, {name: round(value, 4) for name, value in result[linkage].items()}, flush=True)
        result["giants"] = measure_giants(Path(folder), options.rows, options.bits, options.radius)
        print("giants", {name: round(value, 4) for name, value in result["giants"].items()})
    if options.out:
        write_json(options.out, {**result, **provenance(seed=0)})


if __name__ == "__main__":
    main()
