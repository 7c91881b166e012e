"""Measure how far off the advice on the radius is: estimates from few codes beside the truth of many.

    python -m research.benchmarks.radius_advice FOLDER ... --codes codes.npz --picture docs/images/radius_advice.png

Generated codes have shares of false pairs that are known by arithmetic, or by a join of 200,000 codes. Of photos, all
pairs are counted; pairs that two hashes agree on are copies and left out. Then the shares are estimated from a few of
the codes, drawn at random, with and without planted copies. A factor is estimate / truth; above 1 is the safe side.

The codes of the photos are computed once and kept in the file `--codes`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.codes import Codes, distances, pack
from hamtarget.datasets.pictures.images import read_image
from hamtarget.encoders import open_encoder
from hamtarget.errors import ImageError
from hamtarget.evaluation import advise_radius
from hamtarget.evaluation.distance_tail import fit_tail, pair_distances
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import pairs_within

Shares = NDArray[np.float64]

_SHARES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
_SAMPLES = (300, 1000, 2000, 14_000)
_COPIES = (0.0, 0.1)
# A planted copy differs in up to this share of its bits.
_CHANGED = 1 / 16
# Shares of fewer pairs than this are not known well enough to be a truth.
_FEWEST = 10
_JOINED = 200_000
_PHOTO_TRIALS = 10
# Photos within so many bits by both of the first two hashes are copies.
_COPY_BITS = 10


def _uniform(rows: int, rng: np.random.Generator, n_bits: int = 64) -> Codes:
    return rng.integers(0, 256, (rows, n_bits // 8), dtype=np.uint8)


_ONES = np.linspace(0.05, 0.5, 64)
_MIXING = np.random.default_rng(7).standard_normal((16, 64))

GENERATED: dict[str, Callable[[int, np.random.Generator], Codes]] = {
    "uniform, 64 bits": _uniform,
    "uniform, 256 bits": lambda rows, rng: _uniform(rows, rng, 256),
    "skewed, 64 bits": lambda rows, rng: pack(rng.random((rows, 64)) < _ONES),
    "each bit twice, 64 bits": lambda rows, rng: pack(np.repeat(rng.integers(0, 2, (rows, 32)), 2, axis=1)),
    "signs of 16 dimensions, 64 bits": lambda rows, rng: pack(rng.standard_normal((rows, 16)) @ _MIXING > 0),
}


def _binomial(n_bits: int) -> Shares:
    return np.cumsum([comb(n_bits, k) / 2**n_bits for k in range(n_bits + 1)])


def _independent(ones: Shares) -> Shares:
    share = np.ones(1)
    for one in ones:
        differs = 2 * one * (1 - one)
        share = np.convolve(share, [1 - differs, differs])
    return np.cumsum(share)


def _joined(make: Callable[[int, np.random.Generator], Codes], rng: np.random.Generator) -> Shares:
    """Return shares counted among many codes; 0 where fewer than ten pairs were met."""
    pilot = pair_distances(make(4000, rng))
    shares = np.cumsum(pilot) / pilot.sum()
    radius = int(np.searchsorted(shares, 1e-5))
    counts = np.zeros(len(pilot), dtype=np.int64)
    for pairs in pairs_within(make(_JOINED, rng), radius):
        counts += np.bincount(pairs.distances, minlength=len(pilot))
    within = np.cumsum(counts)
    deep = np.where(within >= _FEWEST, within / (_JOINED * (_JOINED - 1) / 2), 0.0)
    return np.where(np.arange(len(pilot)) <= radius, deep, shares)


def _truths(rng: np.random.Generator) -> dict[str, Shares]:
    twice = np.repeat(_binomial(32), 2)[:65]
    return {
        "uniform, 64 bits": _binomial(64),
        "uniform, 256 bits": _binomial(256),
        "skewed, 64 bits": _independent(_ONES),
        "each bit twice, 64 bits": twice,
        "signs of 16 dimensions, 64 bits": _joined(GENERATED["signs of 16 dimensions, 64 bits"], rng),
    }


def _with_copies(codes: Codes, share: float, rng: np.random.Generator) -> Codes:
    """Return the codes with altered copies of some of them appended."""
    bits = np.unpackbits(codes[rng.choice(len(codes), int(share * len(codes)))], axis=1, bitorder="little")
    for row in bits:
        row[rng.choice(len(row), rng.integers(0, int(_CHANGED * len(row)) + 1), replace=False)] ^= 1
    return np.concatenate([codes, np.packbits(bits, axis=1, bitorder="little")])


def _compare(
    truth: Shares, draw: Callable[[int], Codes], samples: tuple[int, ...], trials: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Estimate shares from samples of codes; return the factors at each share, and how far radii are off."""
    found = []
    for n_codes in samples:
        for copies in _COPIES:
            estimates = []
            for _ in range(trials):
                codes = _with_copies(draw(n_codes), copies, rng)
                estimates.append(fit_tail(pair_distances(codes), len(codes)).shares)
            for share in _SHARES:
                radius = int(np.searchsorted(truth, share))
                if truth[radius] == 0 or truth[radius] > 9 * share:
                    continue
                factors = [float(each[radius] / truth[radius]) for each in estimates]
                off = [_within(each, share) - _within(truth, share) for each in estimates]
                found.append(
                    {
                        "codes": n_codes,
                        "copies": copies,
                        "share": float(truth[radius]),
                        "radius": radius,
                        "factor_median": float(np.median(factors)),
                        "factor_least": min(factors),
                        "factor_most": max(factors),
                        "bits_off": [min(off), max(off)],
                    }
                )
    return found


def _within(shares: Shares, most: float) -> int:
    """Return the largest radius with at most this share; -1 if there is none."""
    return int(np.searchsorted(shares, most, side="right")) - 1


def _photo_codes(folders: list[Path], names: list[str], file: Path) -> dict[str, Codes]:
    """Return the codes of the photos of folders by each encoder, from the file if it is there."""
    if file.exists():
        with np.load(file) as kept:
            return {name: kept[name] for name in names}
    from PIL import Image

    from research.shipping.copies.photos import photos_in

    encoders = {name: open_encoder(name) for name in names}
    paths = list(photos_in(folders))
    codes: dict[str, list[Codes]] = {name: [] for name in names}
    with progress_on_stderr("Hashing photos") as tell:
        for done, path in enumerate(paths, start=1):
            try:
                with Image.open(path) as photo:
                    photo.load()
                    found = {
                        name: encoder.encode(read_image(photo, form_of(encoder))[None])
                        for name, encoder in encoders.items()
                    }
            except (ImageError, OSError) as error:
                print(f"{path.name}: {error}")
                continue
            for name, code in found.items():
                codes[name].append(code)
            tell(done, len(paths))
    stacked = {name: np.concatenate(rows) for name, rows in codes.items()}
    np.savez(file, **stacked)  # type: ignore[arg-type]
    return stacked


def _without_copies(codes: dict[str, Codes]) -> tuple[dict[str, Codes], int]:
    """Remove every photo that is a copy of an earlier one; return the rest, and how many were removed."""
    first, second = list(codes.values())[:2]
    copies = set()
    for pairs in pairs_within(first, _COPY_BITS):
        for a, b in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True):
            if distances(second[a], second[b], 8 * second.shape[1])[0, 0] <= _COPY_BITS:
                copies.add(b)
    kept = [row for row in range(len(first)) if row not in copies]
    return {name: rows[kept] for name, rows in codes.items()}, len(copies)


def _advised(codes: Codes, counts: NDArray[np.int64], n_sample: int, trials: int, rng: np.random.Generator) -> Any:
    """Return the radii that samples advise for all photos, and the false pairs that they truly have."""
    within = np.cumsum(counts)
    allowed = len(codes) / 1000
    radii = []
    for _ in range(trials):
        sample = codes[rng.choice(len(codes), n_sample, replace=False)]
        radii.append(advise_radius(_with_copies(sample, 0.1, rng), n_rows=len(codes)).radius)
    return {
        "codes": n_sample,
        "rows": len(codes),
        "allowed_false_pairs": allowed,
        "best_radius": max(0, _within(within.astype(np.float64), allowed)),
        "advised_radii": radii,
        "false_pairs_within_them": [int(within[radius]) for radius in radii],
    }


def _seconds(rng: np.random.Generator) -> dict[str, float]:
    """Return how long the advice on a million codes takes."""
    found = {}
    for n_bits in (64, 256):
        codes = _uniform(1_000_000, rng, n_bits)
        began = time.perf_counter()
        advise_radius(codes)
        found[f"1,000,000 codes of {n_bits} bits"] = round(time.perf_counter() - began, 2)
    return found


def measure(folders: list[Path], names: list[str], file: Path, *, trials: int, seed: int) -> dict[str, Any]:
    """Return all figures, and for the picture the shares by radius."""
    rng = np.random.default_rng(seed)
    result: dict[str, Any] = {"provenance": provenance(seed=seed), "trials": trials, "generated": {}, "photos": {}}
    result["seconds"] = _seconds(rng)
    print(result["seconds"])
    for name, truth in _truths(rng).items():

        def make(rows: int, name: str = name) -> Codes:
            return GENERATED[name](rows, rng)

        result["generated"][name] = _compare(truth, make, _SAMPLES, trials, rng)
        _print(name, result["generated"][name])
    photos, n_copies = _without_copies(_photo_codes(folders, names, file))
    result["copies_left_out"] = n_copies
    for name, codes in photos.items():
        counts = pair_distances(codes)
        within = np.cumsum(counts)
        truth = np.where(within >= _FEWEST, within / within[-1], 0.0)

        def draw(rows: int, codes: Codes = codes) -> Codes:
            return codes[rng.choice(len(codes), rows, replace=False)]

        # Photos differ more from draw to draw than generated codes.
        many = _PHOTO_TRIALS * trials
        found = _compare(truth, draw, _SAMPLES[:-1], many, rng)
        lines = [fit_tail(pair_distances(draw(2000)), 2000).shares for _ in range(2 * trials)]
        result["photos"][name] = {
            "photos": len(codes),
            "estimates": found,
            "advice": _advised(codes, counts, 2000, many, rng),
            "shares": within / within[-1],
            "estimated_from_2000": lines,
        }
        _print(name, found)
        print(result["photos"][name]["advice"])
    return result


def _print(name: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}\n| codes | copies | share | radius | factor: median | least to most | radius off by |")
    for row in rows:
        low, high = row["bits_off"]
        print(
            f"| {row['codes']:,} | {row['copies']:.0%} | {row['share']:.1e} | {row['radius']} "
            f"| {row['factor_median']:.2g} | {row['factor_least']:.2g} to {row['factor_most']:.2g} | {low} to {high} |"
        )


def plot(photos: dict[str, Any], path: Path) -> None:
    """Draw the shares of photos by radius, and what 2,000 of them say."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(photos), figsize=(5 * len(photos), 4.2), layout="constrained", squeeze=False
    )
    for axes, (name, found) in zip(panels[0], photos.items(), strict=True):
        shares = np.asarray(found["shares"])
        # Where only even distances occur, a line through all radii would be stairs.
        steps = np.concatenate([[True], np.diff(shares) > 0])
        for number, line in enumerate(found["estimated_from_2000"]):
            estimate = np.asarray(line)
            kept = np.concatenate([[True], np.diff(estimate) > 0])
            axes.semilogy(
                np.flatnonzero(kept),
                estimate[kept],
                color="#e8a33d",
                alpha=0.6,
                label="estimated from 2,000 of them" if number == 0 else None,
            )
        shown = steps & (shares > 0)
        axes.semilogy(
            np.flatnonzero(shown), shares[shown], "o", ms=4, color="#0b6e4f", label=f"all {found['photos']:,} photos"
        )
        last = int(np.searchsorted(shares, 0.02))
        first = int(np.flatnonzero(shares > 0)[0])
        axes.set_xlim(max(-0.5, first - (last - first) // 2), last)
        axes.set_ylim(1e-10, 0.05)
        axes.set_title(f"{name}: share of pairs of different photos", loc="left", fontsize=10)
        axes.set_xlabel("within this radius (bits)")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Measure, print tables, write JSON and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of photos")
    parser.add_argument("--codes", type=Path, required=True, help="file of the photos' codes; made if it is not there")
    parser.add_argument("--encoders", nargs="+", default=["phash", "dhash"], help="names that open_encoder knows")
    parser.add_argument("--trials", type=int, default=4, help="draws of generated codes; of photos ten times as many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("research/results/radius_advice.json"))
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    result = measure(
        arguments.folders, arguments.encoders, arguments.codes, trials=arguments.trials, seed=arguments.seed
    )
    if arguments.picture:
        plot(result["photos"], arguments.picture)
    for found in result["photos"].values():
        # The picture has them; the file stays small.
        del found["shares"], found["estimated_from_2000"]
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
