"""Make codes to search: clustered sets that are generated from a seed, and codes of real SIFT descriptors."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, from_logits
from hamtarget.encoders.itq import ITQ
from hamtarget.encoders.lsh import LSH
from hamtarget.search.planning import measured_candidates

# Rows drawn at a time: noise takes 4 bytes for each bit.
_ROWS_AT_A_TIME = 250_000
# Queries whose candidates are counted, at about a millisecond each.
_QUERIES_COUNTED = 2_000


@dataclass(frozen=True, eq=False)
class CodeSet:
    """Codes to store and codes to look for, with their origin."""

    name: str
    n_bits: int
    radius: int
    codes: Codes
    queries: Codes
    origin: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """Measure what a query of this set reads and finds; ready for JSON."""
        counted = self.queries[:_QUERIES_COUNTED]
        found = measured_candidates(counted, self.codes, n_bits=self.n_bits, radius=self.radius)
        return {
            "n_rows": len(self.codes),
            "n_bits": self.n_bits,
            "radius": self.radius,
            "n_queries": len(self.queries),
            "origin": self.origin,
            "queries_counted": len(counted),
            "candidates": _spread(found.candidates),
            "hits": _spread(found.hits),
        }


@dataclass(frozen=True)
class Clusters:
    """A recipe for clustered codes: centres, and rows and queries that are centres with some bits flipped.

    A row or a query belongs to a cluster chosen at random, so that the size of clusters is Poisson.
    """

    name: str
    n_rows: int
    n_bits: int
    radius: int
    cluster_size: float
    """Mean number of rows of a cluster."""
    flip: float
    """Probability with which each bit of a row or query differs from its centre."""
    bias: float = 0.0
    """Spread of the bits' thresholds in standard deviations: above 0, some bits are mostly 1, some mostly 0."""
    correlation: float = 0.0
    """Share of the variance of the centres that all bits have in common, in `factors` directions."""
    factors: int = 4
    seed: int = 0

    def draw(self, n_queries: int) -> CodeSet:
        """Return the codes and the queries of this recipe."""
        random = np.random.default_rng(self.seed)
        centres = self._centres(random)
        codes = self._around(centres, self.n_rows, random)
        queries = self._around(centres, n_queries, random)
        return CodeSet(self.name, self.n_bits, self.radius, codes, queries, {"generator": "clusters", **asdict(self)})

    def _centres(self, random: np.random.Generator) -> Codes:
        n_clusters = max(1, round(self.n_rows / self.cluster_size))
        directions = random.standard_normal((self.factors, self.n_bits), dtype=np.float32)
        directions /= np.linalg.norm(directions, axis=0)
        thresholds = self.bias * random.standard_normal(self.n_bits, dtype=np.float32)
        own, common = np.float32(np.sqrt(1 - self.correlation)), np.float32(np.sqrt(self.correlation))
        centres = np.empty((n_clusters, self.n_bits // 8), dtype=np.uint8)
        for start in range(0, n_clusters, _ROWS_AT_A_TIME):
            block = centres[start : start + _ROWS_AT_A_TIME]
            logits = own * random.standard_normal((len(block), self.n_bits), dtype=np.float32)
            logits += common * random.standard_normal((len(block), self.factors), dtype=np.float32) @ directions
            block[...] = from_logits(logits - thresholds)
        return centres

    def _around(self, centres: Codes, n_rows: int, random: np.random.Generator) -> Codes:
        rows = centres[random.integers(0, len(centres), n_rows)]
        for start in range(0, n_rows, _ROWS_AT_A_TIME):
            block = rows[start : start + _ROWS_AT_A_TIME]
            flips = random.random((len(block), self.n_bits), dtype=np.float32) < self.flip
            block ^= np.packbits(flips, axis=1, bitorder="little")
        return rows


def recipes(n_rows: int) -> dict[str, Clusters]:
    """Return the generated sets by name.

    At 1,000,000 rows they have the candidates and hits that docs/search-benchmark.md states. Every set has `n_rows`
    rows, except the one that has ten times as many.
    """
    light = Clusters("L", n_rows, 64, 2, cluster_size=91, flip=0.034, seed=1)
    found = [
        light,
        Clusters("S", n_rows, 64, 2, cluster_size=97, flip=0.0364, bias=1.0, correlation=0.62, seed=2),
        Clusters("H", n_rows, 64, 2, cluster_size=6_850, flip=0.0363, seed=3),
        replace(light, name="L x 10", n_rows=10 * n_rows),
        Clusters("128 bits", n_rows, 128, 3, cluster_size=69, flip=0.02, seed=4),
        Clusters("256 bits", n_rows, 256, 7, cluster_size=52, flip=0.0173, seed=5),
    ]
    return {recipe.name: recipe for recipe in found}


def data_folder() -> Path:
    """Return the folder of real data: HAMTARGET_DATA, or shared/data beside the repository."""
    repository = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("HAMTARGET_DATA", repository.parent / "shared" / "data"))


def sift_sets(n_rows: int, n_queries: int, *, seed: int) -> list[CodeSet]:
    """Return 64-bit ITQ and LSH codes of SIFT descriptors, fitted to the learning set.

    Raises:
        FileNotFoundError: the descriptors are not in `data_folder()`.
    """
    folder = data_folder() / "sift1m"
    learn, base_0, base_1, query = (_vectors(folder / f"{name}.npz") for name in ("learn", "base-0", "base-1", "query"))
    base = np.concatenate([base_0, base_1])[:n_rows]
    query = query[:n_queries]
    sets = []
    for encoder in (ITQ(64, seed=seed), LSH(64, seed=seed)):
        encoder.fit(learn)
        name = type(encoder).__name__
        origin = {"data": "sift1m", "encoder": name, "seed": seed, "fitted_to": len(learn)}
        sets.append(CodeSet(f"SIFT {name}", 64, 2, encoder.encode(base), encoder.encode(query), origin))
    return sets


def _vectors(path: Path) -> NDArray[np.uint8]:
    with np.load(path) as file:
        vectors: NDArray[np.uint8] = file["vectors"]
    return vectors


def _spread(counts: NDArray[np.int64]) -> dict[str, float]:
    return {
        "mean": float(counts.mean()),
        "median": float(np.median(counts)),
        "p99": float(np.quantile(counts, 0.99)),
    }
