"""Measure how well the picture hashes of the package find altered copies of photos that were never trained on.

    python -m research.benchmarks.copies_recall FOLDER ... --held-out held_out.txt

Each photo of the list is stored as it is. Some are altered in every way, and searched for: a copy is found if its
distance is within the radius at which at most one pair in a million (or in 100,000) of different photos would be
found, too. phash, dhash and pdq give the bits of the public packages imagehash and pdqhash.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hamtarget._picture_form import form_of
from hamtarget.codes import Codes
from hamtarget.datasets import read_images
from hamtarget.encoders import open_encoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.evaluation.provenance import provenance, write_json
from research.datasets.altered_photos import ALTERATIONS, Picture
from research.shipping.copies.photos import photos_in

HASHES = ("phash", "dhash", "pdq", "copies64", "copies256")
RATES = (1e-6, 1e-5)
# Larger photos are made smaller first: alterations of all pixels of a camera take long, and the codes are the same.
_LARGEST_SIDE = 800
# Photos that PDQ finds within so many bits of another are copies, not distractors.
_COPY_BITS = 50
_TOLD_PHOTOS = 500


def codes_of(photos: list[Picture], encoder: Encoder) -> Codes:
    """Return the codes of photos."""
    return encoder.encode(read_images(photos, form_of(encoder)))


def radius_at(distances: NDArray[np.int64], rate: float) -> int:
    """Return the largest radius within which at most this share of different photos lies; -1 if there is none."""
    counts = np.bincount(distances).cumsum()
    return int(np.searchsorted(counts, rate * len(distances), side="right")) - 1


def _distances(codes: Codes) -> NDArray[np.int64]:
    """Return the distances of all codes to each other."""
    signs = 2 * np.unpackbits(codes, axis=1).astype(np.float32) - 1
    distances: NDArray[np.int64] = np.rint((signs.shape[1] - signs @ signs.T) / 2).astype(np.int64)
    return distances


def measure(paths: list[Path], n_queries: int, encoders: dict[str, Encoder], seed: int) -> dict[str, Any]:
    """Return the recall of every hash for every alteration, at each rate of false pairs and by radius."""
    queries = set(np.random.default_rng(seed).choice(len(paths), n_queries, replace=False).tolist())
    stored: dict[str, list[Codes]] = {name: [] for name in encoders}
    altered: dict[str, list[Codes]] = {name: [] for name in encoders}
    places = []
    for place, path in enumerate(paths):
        with Image.open(path) as file:
            photo = file.convert("RGB")
        photo.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE), Image.Resampling.LANCZOS)
        views = [alteration(photo) for alteration in ALTERATIONS.values()] if place in queries else []
        for name, encoder in encoders.items():
            codes = codes_of([photo, *views], encoder)
            stored[name].append(codes[0])
            if views:
                altered[name].append(codes[1:])
        if views:
            places.append(place)
        if place % _TOLD_PHOTOS == 0:
            print(f"{place:,} of {len(paths):,} photos", file=sys.stderr, flush=True)
    near = np.triu(_distances(np.stack(stored["pdq"])) <= _COPY_BITS, 1)
    copies: NDArray[np.bool_] = np.asarray(near.any(axis=0))
    kept = np.flatnonzero(~copies)
    pairs = np.triu_indices(len(kept), 1)
    asked = [n for n, place in enumerate(places) if not copies[place]]
    results: dict[str, Any] = {}
    for name, encoder in encoders.items():
        codes = np.stack(stored[name])
        different = _distances(codes[kept])[pairs]
        originals = codes[[places[n] for n in asked]]
        views_of = np.stack([altered[name][n] for n in asked])
        distances = np.bitwise_count(views_of ^ originals[:, None]).sum(axis=2, dtype=np.int64)
        within = np.stack([_share_within(column, encoder.n_bits) for column in distances.T])
        at_rates = {}
        for rate in RATES:
            radius = radius_at(different, rate)
            recall = within[:, radius] if radius >= 0 else np.zeros(len(ALTERATIONS))
            by_alteration = dict(zip(ALTERATIONS, recall.round(4).tolist(), strict=True))
            at_rates[f"{rate:g}"] = {"radius": radius, "mean": float(recall.mean()), "recall": by_alteration}
        results[name] = {
            "n_bits": encoder.n_bits,
            "at_rates": at_rates,
            "share_within": _share_within(different, encoder.n_bits).tolist(),
            "recall_within": within.mean(axis=0).round(5).tolist(),
        }
    return {"photos": len(kept), "queries": len(asked), "pairs": len(pairs[0]), "hashes": results}


def _share_within(distances: NDArray[np.int64], n_bits: int) -> NDArray[np.float64]:
    """Return, for each radius from 0 to `n_bits`, the share of the distances that are within it."""
    return np.bincount(distances, minlength=n_bits + 1).cumsum() / len(distances)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with the photos")
    parser.add_argument("--held-out", type=Path, help="file with the names of photos to measure with; default: all")
    parser.add_argument("--queries", type=int, default=300, help="photos that are altered (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("research/results/copies_recall.json"), help="JSON file")
    asked = parser.parse_args()
    paths = list(photos_in(asked.folders))
    if asked.held_out is not None:
        names = set(asked.held_out.read_text(encoding="utf-8").splitlines())
        paths = [path for path in paths if path.name in names]
    results = measure(paths, asked.queries, {name: open_encoder(name) for name in HASHES}, asked.seed)
    results["provenance"] = provenance(seed=asked.seed)
    write_json(asked.out, results)
    for name, facts in results["hashes"].items():
        at_rates = facts["at_rates"].items()
        print(f"{name}: " + ", ".join(f"{at['mean']:.3f} within {at['radius']} at {rate}" for rate, at in at_rates))


if __name__ == "__main__":
    main()
