"""Count what two ways to treat uneven codes would save: thresholds chosen for each query, and bits dealt to substrings.

    python -m research.benchmarks.skew_gain --out research/results/skew_gain.json

A search within r bits reads table j as far as t_j flipped bits, where the sum of all t_j + 1 is r + 1. The index takes
the same t_j for every query. Here they are chosen query by query, by the true sizes of the buckets, which no index
could know for nothing: the gain is the most that there can be. Substrings are runs of bits, or bits dealt so that
correlated ones are apart. Sets: S and H of search_sets, and pHash and dHash codes of photos and 14 alterations of each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, substring_bounds, unpack
from hamtarget.encoders.picture_hashes import DHash, PHash, PictureHash
from hamtarget.errors import FileError
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search.tables import choose_substrings
from research.benchmarks.search_sets import data_folder, recipes
from research.datasets.image_data import open_image_data

RADII = (4, 8)
_N_BITS = 64
_N_QUERIES = 400
_VIEWS = 15
_ROWS_COMPARED = 50_000
# Nanoseconds of a bucket and of a row in it, about those of the index for a million rows.
_BUCKET, _ROW = 70.0, 0.9
# Flips of a table that are considered: none is read, its own bucket, one bit, two bits.
_MOST_FLIPS = 2

Bits = NDArray[np.bool_]
Groups = Sequence[NDArray[np.int64]]


def main() -> None:
    """Count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("research/results/skew_gain.json"), help="JSON file")
    parser.add_argument("--rows", type=int, default=300_000, help="rows of the generated sets (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of alterations and queries (default: %(default)s)")
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    results = []
    for name, codes in _sets(arguments.rows, random).items():
        queries = codes[random.choice(len(codes), _N_QUERIES, replace=False)]
        bits, wanted = unpack(codes, _N_BITS).astype(bool), unpack(queries, _N_BITS).astype(bool)
        for radius in RADII:
            planned = choose_substrings(len(codes), _N_BITS, radius).substrings
            for count in sorted({planned, radius + 1}):
                for dealt, groups in (("runs", _runs(count)), ("apart", _apart(bits, count))):
                    found = _gain(bits, wanted, radius, groups)
                    results.append(
                        {"set": name, "rows": len(codes), "radius": radius, "substrings": count, "bits": dealt, **found}
                    )
                    print(results[-1], flush=True)
    write_json(arguments.out, {"provenance": provenance(seed=arguments.seed), "cases": results})


def _sets(n_rows: int, random: np.random.Generator) -> dict[str, Codes]:
    sets = {name: recipes(n_rows)[name].draw(1).codes for name in ("S", "H")}
    try:
        photos = open_image_data(data_folder() / "tiny-imagenet100").database
    except FileError as error:
        print(f"without photos: {error}")
        return sets
    for encoder in (PHash(), DHash()):
        pictures = photos.decode(encoder.picture_form).images.astype(np.float32)
        sets[encoder.name] = _codes_of_views(encoder, pictures, random)
    return sets


def _codes_of_views(encoder: PictureHash, pictures: NDArray[np.float32], random: np.random.Generator) -> Codes:
    codes = [encoder.encode(pictures.astype(np.uint8))]
    each = (len(pictures), 1, 1)
    for view in range(1, _VIEWS):
        altered = pictures * random.uniform(0.6, 1.3, each) + random.uniform(-20, 20, each)
        altered += random.normal(0, 1, pictures.shape) * random.choice([0, 2, 5, 10], each)
        if view % 3 == 0:
            altered = np.roll(altered, 1, axis=1 + view % 2)
        if view % 5 == 0:
            altered = altered[:, :, ::-1]
        codes.append(encoder.encode(np.clip(altered, 0, 255).round().astype(np.uint8)))
    return np.concatenate(codes)


def _runs(count: int) -> Groups:
    return [np.arange(start, stop) for start, stop in substring_bounds(_N_BITS, count)]


def _apart(bits: Bits, count: int) -> Groups:
    """Return groups of bits, dealt the most correlated first, each to the group that it is least correlated to."""
    sample = bits[:: max(1, len(bits) // _ROWS_COMPARED)].astype(np.float64)
    sample -= sample.mean(axis=0)
    sample /= np.maximum(sample.std(axis=0), 1e-9)
    squares = (sample.T @ sample / len(sample)) ** 2
    sizes = [stop - start for start, stop in substring_bounds(_N_BITS, count)]
    groups: list[list[int]] = [[] for _ in sizes]
    for bit in np.argsort(-squares.sum(axis=1)).tolist():
        free = [number for number, size in enumerate(sizes) if len(groups[number]) < size]
        chosen = min(free, key=lambda number: (squares[bit, groups[number]].sum(), len(groups[number])))
        groups[chosen].append(bit)
    return [np.array(sorted(group)) for group in groups]


def _gain(bits: Bits, queries: Bits, radius: int, groups: Groups) -> dict[str, Any]:
    """Return candidates and expected microseconds, with fixed thresholds and with the best for each query."""
    rows, costs = zip(*(_table(bits, queries, group) for group in groups), strict=True)
    fixed = [min((radius - table) // len(groups), _MOST_FLIPS) + 1 for table in range(len(groups))]
    fixed_cost = sum(cost[flips] for cost, flips in zip(costs, fixed, strict=True))
    # best[b]: cheapest way to spend b of radius + 1 on the tables so far.
    best = np.full((radius + 2, len(queries)), np.inf)
    best[0] = 0
    for cost in costs:
        best = np.array(
            [
                np.min([best[spent - flips] + cost[flips] for flips in range(min(spent, _MOST_FLIPS + 1) + 1)], axis=0)
                for spent in range(radius + 2)
            ]
        )
    return {
        "candidates": float(np.mean(sum(row[flips] for row, flips in zip(rows, fixed, strict=True)))),
        "fixed_us": float(np.mean(fixed_cost)) / 1000,
        "by_query_us": float(np.mean(best[radius + 1])) / 1000,
    }


def _table(bits: Bits, queries: Bits, group: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows read and cost of a table by flips, from "not read" on, as arrays (flips, queries)."""
    n_bits = len(group)
    weights = 1 << np.arange(n_bits)
    sizes = np.bincount(bits[:, group] @ weights, minlength=1 << n_bits)
    own = queries[:, group] @ weights
    one = sum(sizes[own ^ bit] for bit in weights)
    two = sum(sizes[own ^ first ^ second] for i, first in enumerate(weights) for second in weights[:i])
    rows = np.cumsum([np.zeros(len(own)), sizes[own], one, two], axis=0)
    buckets = np.cumsum([0, 1, n_bits, comb(n_bits, 2)])
    return rows, _BUCKET * buckets[:, None] + _ROW * rows


if __name__ == "__main__":
    main()
