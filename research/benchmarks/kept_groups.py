"""Measure what groups that are kept add to the time of puts and deletes, and how long giant groups take.

    python -m research.benchmarks.kept_groups --rows 1000000 --out research/results/kept_groups.json
    python -m research.benchmarks.kept_groups --table research/results/kept_groups.json

Nearly all rows are in groups, of three on average; they have names and small payloads. Two stores take the same 1,000
rows in turns: a plain one, and one that is then asked for the first page of its groups. Of the new rows, a share is
near grouped ones, the others near nothing. The giant groups are ten codes of a tenth of the rows each, one bit apart
from the next.
"""

from __future__ import annotations

import argparse
import json
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
from hamtarget.store.groups.results import Groups, Linkage

N_CHANGED = 1000
BATCH = 50_000

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
        put(store, start, block)
    store.compact()
    return store


def first_page(store: Store, linkage: Linkage = "single") -> Groups:
    """Return the first page of groups."""
    return store.groups(linkage=linkage, limit=50, members=100)


def put(store: Store, first: int, codes: Codes) -> None:
    """Put rows with names and payloads, from a number on."""
    ids = [name_of(row) for row in range(first, first + len(codes))]
    payloads = [{"image": f"{row % 100}/{row}.jpg", "label": row % 100} for row in range(first, first + len(codes))]
    store.put_rows(ids, codes=codes, payloads=payloads)


def name_of(row: int) -> str:
    """Return an id of about the length of a file name."""
    return f"picture-{row:08}.jpg"


def took(times: Times, name: str, call: Callable[[], Any]) -> Any:
    """Note how long a call takes, by the clock and by the processor, and return what it returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    times.setdefault(name, []).append(time.perf_counter() - wall)
    times.setdefault(f"{name}_cpu", []).append(time.process_time() - cpu)
    return result


def measure_changes(
    folder: Path,
    codes: Codes,
    radius: int,
    linkage: Linkage,
    rounds: int,
    shares: list[float],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return medians of the times of puts and deletes, plain and with groups."""
    made: Times = {}
    result: dict[str, Any] = {}
    with fill(folder / "plain", codes, radius) as plain, fill(folder / "grouped", codes, radius) as store:
        found = took(made, "made_anew", lambda: first_page(store, linkage))
        result = {
            "n_groups": found.n_groups,
            "n_items": found.n_items,
            **{name: each[0] for name, each in made.items()},
        }
        n_rows = len(codes)
        for share in shares:
            times: Times = {}
            for number in range(rounds + 1):
                # The first round is not counted.
                noted: Times = times if number else {}
                new = new_codes(codes, share, rng)
                took(noted, "plain_put", lambda: put(plain, n_rows, new))  # noqa: B023
                took(noted, "put", lambda: put(store, n_rows, new))  # noqa: B023
                took(noted, "groups_after_put", lambda: first_page(store, linkage))
                gone = [name_of(row) for row in rng.choice(len(codes), N_CHANGED, replace=False)]
                took(noted, "plain_delete", lambda: plain.delete(gone))  # noqa: B023
                took(noted, "delete", lambda: store.delete(gone))  # noqa: B023
                took(noted, "groups_after_delete", lambda: first_page(store, linkage))
                n_rows += N_CHANGED
            result[f"near_{share:g}"] = with_ratios({name: statistics.median(each) for name, each in times.items()})
        result["groups_bytes"] = sum(file.stat().st_size for file in (folder / "grouped" / "groups").glob("*.db"))
    for name in ("plain", "grouped"):
        shutil.rmtree(folder / name)
    return result


def new_codes(codes: Codes, share: float, rng: np.random.Generator) -> Codes:
    """Return new codes, of which a share is near some of `codes`."""
    near = flipped(codes[rng.integers(0, len(codes), round(share * N_CHANGED))], rng)
    far = rng.integers(0, 256, (N_CHANGED - len(near), codes.shape[1]), dtype=np.uint8)
    return np.concatenate((near, far))


def with_ratios(medians: dict[str, float]) -> dict[str, float]:
    """Return medians, and the ratio of a change and the groups after it to the same change of a plain store."""
    ratios = {
        f"{change}_ratio{unit}": (medians[f"{change}{unit}"] + medians[f"groups_after_{change}{unit}"])
        / medians[f"plain_{change}{unit}"]
        for change in ("put", "delete")
        for unit in ("", "_cpu")
    }
    return {**medians, **ratios}


def measure_giants(folder: Path, n_rows: int, n_bits: int, radius: int) -> dict[str, Any]:
    """Return the times of giant groups: made, followed after one more code, and a page of their members."""
    ten = np.packbits(np.arange(n_bits) < np.arange(10)[:, None], axis=1, bitorder="little")
    times: Times = {}
    with fill(folder / "giants", np.repeat(ten, n_rows // 10, axis=0), radius) as store:
        (group,) = took(times, "made_anew", lambda: first_page(store)).groups
        another = np.packbits(np.arange(n_bits) < 10, bitorder="little")[None]
        put(store, n_rows, another)
        took(times, "groups_after_put", lambda: first_page(store))
        store.delete([name_of(5)])
        took(times, "groups_after_delete", lambda: first_page(store))
        took(times, "members", lambda: store.group_members(group.id, start=n_rows // 2))
    shutil.rmtree(folder / "giants")
    return {"size": group.size, "is_capped": group.is_capped, **{name: each[0] for name, each in times.items()}}


def table(result: dict[str, Any]) -> str:
    """Return the table of docs/groups.md: times of the processor, since the disk's differ from machine to machine."""
    linkages = [name for name in ("single", "representative") if name in result]
    lines = [f"| {result['rows']:,} rows, {result['bits']} bits, radius {result['radius']} | {' | '.join(linkages)} |"]
    lines.append("|---|" + "---:|" * len(linkages))

    def add(what: str, values: list[str]) -> None:
        lines.append(f"| {what} | {' | '.join(values)} |")

    add("all groups, made once", [f"{result[name]['made_anew_cpu']:.1f} s" for name in linkages])
    for share in (name for name in result[linkages[0]] if name.startswith("near_")):
        found = [result[name][share] for name in linkages]
        percent = f"{float(share.removeprefix('near_')):.0%}"
        for change, words in (("put", f"1,000 rows put, {percent} near others"), ("delete", "1,000 rows deleted")):
            add(f"{words}, without groups", [f"{1000 * each[f'plain_{change}_cpu']:.1f} ms" for each in found])
            add("groups after that", [f"{1000 * each[f'groups_after_{change}_cpu']:.1f} ms" for each in found])
            add("ratio of both to the first", [f"{each[f'{change}_ratio_cpu']:.1f}" for each in found])
    return "\n".join(lines)


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Return numbers for people to read."""
    return {name: rounded(each) if isinstance(each, dict) else round(each, 4) for name, each in values.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--radius", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--near", nargs="+", type=float, default=[0.1, 0.5], help="shares of new rows near others")
    parser.add_argument("--linkages", nargs="+", default=["single", "representative"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of a result, and measure nothing")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text("utf-8"))))
        return
    rng = np.random.default_rng(0)
    codes = grouped_codes(options.rows, options.bits, rng)
    result: dict[str, Any] = {"rows": options.rows, "bits": options.bits, "radius": options.radius}
    with tempfile.TemporaryDirectory() as folder:
        for linkage in options.linkages:
            result[linkage] = measure_changes(
                Path(folder), codes, options.radius, linkage, options.rounds, options.near, np.random.default_rng(1)
            )
            print(linkage, rounded(result[linkage]), flush=True)
        result["giants"] = measure_giants(Path(folder), options.rows, options.bits, options.radius)
        print("giants", rounded(result["giants"]))
    if options.out:
        write_json(options.out, {**result, **provenance(seed=0)})


if __name__ == "__main__":
    main()
