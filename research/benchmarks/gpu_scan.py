"""Measure FlatIndex on a GPU against the limits of the machine, torch's plain operations and the scan on the CPU.

    python -m research.benchmarks.gpu_scan --out research/results/gpu_scan.json

The limits are measured in the same run: memory by reading and copying a large array, tensor cores by torch's product of
int8 matrices, which is less than they could do; what their vendor states stands beside it. A comparison of n bits needs
n / 8 bytes of memory in a search for one code, and n multiplications in a batch. Hits are compared with a scan by other
means before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget import FlatIndex
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search.device import searching

SIZES = (1_000_000, 10_000_000, 100_000_000)
LENGTHS = (64, 256, 1024)
N_BATCH = 1024
# Within these, a query finds its own row and hardly any other.
RADII = {64: 4, 256: 31, 1024: 100}
# Multiplications of int8 a second that a vendor states, each with its addition, without sparsity.
PEAKS = {"NVIDIA H200": 989.5e12, "NVIDIA H100 80GB HBM3": 989.5e12}
# Tiles that --tune tries: lines of the scratch, queries and bits of a tile, tiles of a program, warps, stages.
TRIED: dict[int, list[tuple[int, ...]]] = {
    64: [(64, 128, 64, 32, 4, 3), (64, 128, 64, 32, 4, 4), (64, 128, 64, 16, 4, 3), (64, 64, 64, 32, 4, 4),
         (128, 128, 64, 32, 4, 3), (64, 256, 64, 16, 4, 3)],
    256: [(64, 128, 256, 32, 4, 3), (64, 128, 256, 16, 4, 3), (64, 128, 256, 32, 4, 2), (128, 128, 256, 16, 4, 2),
          (64, 256, 256, 32, 4, 3)],
    1024: [(128, 128, 128, 16, 4, 3), (128, 128, 128, 4, 4, 3), (128, 128, 64, 16, 4, 4), (128, 256, 128, 8, 8, 4)],
}  # fmt: skip
COUNTINGS = ((1024, 1), (2048, 1), (4096, 4))
_REPEATS = 15
_FEWER_REPEATS = 5
# A GPU that had nothing to do has a low clock: it works for so long before anything is timed.
_WARM_SECONDS = 0.3
_READ_BYTES = 8 << 30
_MATRIX_SIDES = (4096, 8192, 16384)
# The plain version of torch holds a matrix of distances: it is timed on as many rows as fit.
_PLAIN_ROWS = 1_000_000
_CPU_ROWS = 10_000_000
_CPU_QUERIES = 64


def seconds(work: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Return the median of the times that some work takes, with its wait for the GPU, after some that warms up."""
    end = time.perf_counter() + _WARM_SECONDS
    work()
    while time.perf_counter() < end:
        work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def machine_limits() -> dict[str, Any]:
    """Return bytes that the GPU moves a second, and multiplications of int8: those it does, and those stated for it."""
    return {
        "bytes": _bytes_a_second(),
        "multiplications": _multiplications_a_second(),
        "stated_multiplications": PEAKS.get(torch.cuda.get_device_name()),
    }


def _bytes_a_second() -> float:
    """Return the faster of reading and of copying, which reads and writes."""
    memory = torch.ones(_READ_BYTES // 4, dtype=torch.int32, device="cuda")
    copied = torch.empty_like(memory)
    reading = memory.nbytes / seconds(lambda: torch.max(memory))
    copying = 2 * memory.nbytes / seconds(lambda: copied.copy_(memory))
    return max(reading, copying)


def _multiplications_a_second() -> float:
    """Return what torch reaches with the best of several sizes."""
    return max(_products_a_second(side) for side in _MATRIX_SIDES)


def _products_a_second(side: int) -> float:
    left = torch.randint(-1, 2, (side, side), dtype=torch.int8, device="cuda")
    right = torch.randint(-1, 2, (side, side), dtype=torch.int8, device="cuda").T
    return side**3 / seconds(lambda: torch._int_mm(left, right))


def random_words(n_rows: int, n_bits: int, seed: int) -> Tensor:
    """Return random codes on the GPU, as words."""
    torch.manual_seed(seed)
    info = torch.iinfo(torch.int32)
    words = torch.empty((n_rows, n_bits // 32), dtype=torch.int32, device="cuda")
    for start in range(0, n_rows, 1 << 22):
        words[start : start + (1 << 22)].random_(info.min, info.max)
    return words


def index_of(words: Tensor) -> FlatIndex:
    """Return an index of codes that are on the GPU already, with their numbers as ids."""
    index = FlatIndex(32 * words.shape[1], device="cuda")
    scanner = index._scanner
    if scanner is not None:
        scanner.rows.hold(np.arange(len(words)), words)
    return index


def near_queries(words: Tensor, n_queries: int, seed: int) -> NDArray[np.uint8]:
    """Return fresh queries: codes of rows with two bits flipped."""
    random = np.random.default_rng(seed)
    rows = torch.from_numpy(random.integers(0, len(words), n_queries)).cuda()
    codes = words[rows].cpu().numpy().view(np.uint8).copy()
    for _ in range(2):
        codes[np.arange(n_queries), random.integers(0, codes.shape[1], n_queries)] ^= np.uint8(1) << random.integers(
            0, 8, n_queries
        ).astype(np.uint8)
    return codes


def plain_scan(words: Tensor, queries: Tensor, radius: int) -> Tensor:
    """Return (query, row) of hits as plain torch finds them: a table of the bits of a byte, and a sum."""
    ones = torch.tensor([bin(byte).count("1") for byte in range(256)], dtype=torch.uint8, device="cuda")
    codes = words.view(torch.uint8)
    found = []
    for number, query in enumerate(queries.view(torch.uint8)):
        distance = ones[(codes ^ query).to(torch.int64)].sum(1, dtype=torch.int32)
        rows = torch.nonzero(distance <= radius)
        found.append(torch.cat((torch.full_like(rows, number), rows), 1))
    return torch.cat(found)


def check(words: Tensor, n_queries: int = 150) -> None:
    """Check hits of both kernels, of searches and of nearest rows, by the plain scan.

    Raises:
        RuntimeError: they differ.
    """
    n_bits = 32 * words.shape[1]
    part = words[: min(len(words), 300_000)]
    index = index_of(part)
    codes = near_queries(part, n_queries, seed=5)
    asked = torch.from_numpy(codes.view(np.int32)).cuda()
    for radius in (2, RADII[n_bits]):
        expected = {tuple(pair) for pair in plain_scan(part, asked, radius).tolist()}
        for step in (1, n_queries):
            found = set()
            for start in range(0, n_queries, step):
                hits = index.search_batch(codes[start : start + step], radius)
                queries = np.repeat(np.arange(start, start + step), np.diff(hits.offsets))
                found |= set(zip(queries.tolist(), hits.rows.tolist(), strict=True))
            if found != expected:
                raise RuntimeError(f"{n_bits} bits within {radius}, {step} at a time: hits differ from a plain scan")
    naive = [np.bitwise_count(codes[row] ^ part.cpu().numpy().view(np.uint8)).sum(1) for row in range(3)]
    for step in (1, n_queries):
        nearest = [index.nearest_batch(codes[s : s + step], 9) for s in range(0, n_queries, step)]
        for row, distances in enumerate(naive):
            expected_ids = np.lexsort((np.arange(len(part)), distances))[:9].tolist()
            hits_of_row = nearest[row][0] if step == 1 else nearest[0][row]
            if [hit.id for hit in hits_of_row] != expected_ids:
                raise RuntimeError(f"{n_bits} bits, nearest, {step} at a time: hits differ from a plain scan")


def measure(n_rows: int, n_bits: int, limits: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one size."""
    words = random_words(n_rows, n_bits, seed=n_bits)
    check(words)
    index = index_of(words)
    radius = RADII[n_bits]
    repeats = _REPEATS if n_rows <= _CPU_ROWS else _FEWER_REPEATS
    results: dict[str, Any] = {"rows": n_rows, "n_bits": n_bits, "radius": radius}
    for n_queries in (1, N_BATCH):
        fresh = [near_queries(words, n_queries, seed) for seed in range(repeats + 1)]
        within, nearest = cycle(fresh), cycle(fresh)
        took = seconds(lambda: index.search_batch(next(within), radius), repeats)  # noqa: B023
        took_nearest = seconds(lambda: index.nearest_batch(next(nearest), 10), repeats)  # noqa: B023
        comparisons = n_rows * n_queries / took
        limit = limits["bytes"] / (n_bits // 8) if n_queries == 1 else limits["multiplications"] / n_bits
        results[f"batch_{n_queries}"] = {
            "seconds": took,
            "queries_per_second": n_queries / took,
            "comparisons_per_second": comparisons,
            "limit": limit,
            "share_of_limit": comparisons / limit,
            "nearest_seconds": took_nearest,
            "nearest_queries_per_second": n_queries / took_nearest,
            "nearest_share_of_limit": n_rows * n_queries / took_nearest / limit,
        }
        stated = limits["stated_multiplications"]
        if n_queries > 1 and stated is not None:
            results[f"batch_{n_queries}"]["share_of_stated"] = comparisons * n_bits / stated
    part = words[:_PLAIN_ROWS]
    asked = torch.from_numpy(near_queries(words, 4, seed=1).view(np.int32)).cuda()
    took = seconds(lambda: plain_scan(part, asked, radius), 3) * n_rows / len(part) / len(asked)
    results["plain_torch_queries_per_second"] = 1 / took
    return results


def measure_cpu(n_bits: int, n_rows: int, threads: int) -> dict[str, Any] | None:
    """Return queries a second of the scan of the native core on this machine; None where it is not built."""
    from hamtarget.errors import MissingExtraError

    try:
        index = FlatIndex(n_bits)
    except MissingExtraError:
        return None
    random = np.random.default_rng(1)
    codes = random.integers(0, 256, (n_rows, n_bits // 8), dtype=np.uint8)
    index.add(np.arange(n_rows), codes)
    queries = codes[random.integers(0, n_rows, _CPU_QUERIES * 4)].reshape(4, _CPU_QUERIES, -1)
    fresh = cycle(queries)
    took = seconds(lambda: index.search_batch(next(fresh), RADII[n_bits], work=Work(threads=threads)), 3)
    return {"rows": n_rows, "threads": threads, "queries_per_second": _CPU_QUERIES / took}


def tune(out: Path) -> None:
    """Time tiles, scratches and the number of queries from which tensor cores are faster; print and write them."""
    # Only a machine with a GPU has Triton.
    from hamtarget.search.device import triton_scan
    from hamtarget.search.device.triton_scan import Counting, Tiling, TritonScan

    rows: list[dict[str, Any]] = []
    counts: list[dict[str, Any]] = []
    few: list[dict[str, Any]] = []
    for n_bits in LENGTHS:
        words = random_words(1 << 31 - int(n_bits).bit_length(), n_bits, seed=1)
        queries = near_queries(words, N_BATCH, 1).view(np.int32)
        scan = TritonScan()

        def took(
            n_queries: int, scan: TritonScan = scan, words: Tensor = words, queries: NDArray[np.int32] = queries
        ) -> float:
            asked = queries[:n_queries]
            radii = np.full(n_queries, RADII[32 * words.shape[1]], np.int32)
            span = range(len(words))
            return seconds(lambda: scan.scan(words, asked, radii, None, span, searching._CAPACITY), 5)

        for tiling in (Tiling(*sizes) for sizes in TRIED[n_bits]):
            most = min(most for most in triton_scan.TILINGS if n_bits <= most)
            before, triton_scan.TILINGS[most] = triton_scan.TILINGS[most], tiling
            try:
                pairs = len(words) * N_BATCH / took(N_BATCH)
            except Exception as error:  # A tile that needs more memory than there is.
                print(n_bits, tiling, f"{type(error).__name__}: {str(error)[:100]}", flush=True)
                triton_scan.TILINGS[most] = before
                continue
            best = max((row["comparisons"] for row in rows if row["most_bits"] == most), default=0.0)
            if pairs < best:
                triton_scan.TILINGS[most] = before
            rows.append({"most_bits": most, "tiling": list(tiling), "comparisons": pairs})
            print(n_bits, tuple(tiling), f"{pairs:.3g}", flush=True)
        for scan.scratch_bytes in (1 << 25, 1 << 26, 1 << 27, 1 << 28):
            print(
                n_bits, "scratch", scan.scratch_bytes >> 20, f"{len(words) * N_BATCH / took(N_BATCH):.3g}", flush=True
            )
        scan.scratch_bytes = 1 << 28
        for counting in (Counting(*each) for each in COUNTINGS):
            triton_scan.COUNTING = counting
            times = [took(1), took(8)]
            few.append({"n_bits": n_bits, "counting": list(counting), "seconds": times})
            print(n_bits, tuple(counting), *(f"{1e6 * t:.0f} us" for t in times), flush=True)
        for n_queries in (1, 16, 32, 64, 128, N_BATCH):
            times = []
            for scan.most_few in (n_queries, 0):
                times.append(took(n_queries))
            counts.append({"n_bits": n_bits, "queries": n_queries, "counting": times[0], "multiplying": times[1]})
            print(n_bits, n_queries, *(f"{1e6 * t:.0f} us" for t in times), flush=True)
        write_json(out, {"tilings": rows, "kernels": counts, "few": few, "provenance": provenance(seed=1)})


def use_tuning(path: Path) -> None:
    """Take the fastest tiles of a file that `--tune` wrote."""
    from hamtarget.search.device import triton_scan
    from hamtarget.search.device.triton_scan import Counting, Tiling

    found = json.loads(path.read_text(encoding="utf-8"))
    for row in sorted(found["tilings"], key=lambda row: float(row["comparisons"])):
        triton_scan.TILINGS[row["most_bits"]] = Tiling(*row["tiling"])
    few = found["few"]
    fastest = min(COUNTINGS, key=lambda each: sum(sum(row["seconds"]) for row in few if row["counting"] == [*each]))
    triton_scan.COUNTING = Counting(*fastest)
    print(triton_scan.TILINGS, triton_scan.COUNTING, flush=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--tune", action="store_true", help="time tiles instead")
    parser.add_argument("--tuning", type=Path, help="take the fastest tiles of this file, which --tune wrote")
    parser.add_argument("--most-rows", type=int, default=max(SIZES), help="leave larger sizes out")
    parser.add_argument("--cpu-threads", type=int, default=0, help="also time the scan on so many threads of the CPU")
    asked = parser.parse_args()
    if asked.tune:
        tune(asked.out)
        return
    if asked.tuning is not None:
        use_tuning(asked.tuning)
    limits = machine_limits()
    print(limits, flush=True)
    results: dict[str, Any] = {"limits": limits, "sizes": [], "cpu": []}
    for n_bits, n_rows in product(LENGTHS, SIZES):
        if n_rows > asked.most_rows:
            continue
        found = measure(n_rows, n_bits, limits)
        results["sizes"].append(found)
        one, many = found["batch_1"], found[f"batch_{N_BATCH}"]
        print(
            f"{n_bits:5} bits {n_rows:12,} rows: one {one['queries_per_second']:8.0f} q/s "
            f"{one['share_of_limit']:.2f} of memory, {N_BATCH} {many['queries_per_second']:10.0f} q/s "
            f"{many['comparisons_per_second']:.3g}/s {many['share_of_limit']:.2f} of torch's product, "
            f"{many.get('share_of_stated', 0):.2f} of what is stated; nearest "
            f"{1e3 * one['nearest_seconds']:.2f} ms, {many['nearest_share_of_limit']:.2f}; "
            f"plain torch {found['plain_torch_queries_per_second']:.0f} q/s",
            flush=True,
        )
        torch.cuda.empty_cache()
    for n_bits in LENGTHS if asked.cpu_threads else ():
        found_cpu = measure_cpu(n_bits, _CPU_ROWS, asked.cpu_threads)
        if found_cpu is None:
            print("SKIPPED: the scan on the CPU, because the native core is not built here", flush=True)
            break
        results["cpu"].append({"n_bits": n_bits, **found_cpu})
        print(results["cpu"][-1], flush=True)
    write_json(asked.out, {**results, "provenance": provenance(seed=1)})


if __name__ == "__main__":
    main()
