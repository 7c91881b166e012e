"""Score codes for look-up within a radius on a part of the base, and say how well the loss foresaw the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.codes import substring_bounds
from hamtarget.learn.losses.binomial import log_tails_continued
from hamtarget.learn.losses.pair_cost import PairCost, Probability
from research.datasets.vector_sets import VectorSet
from research.trials.frontier_ensemble import N_BITS, RADIUS, units_of

# recall@100 is what the paper reports. The look-up's own constant would need the native core.
K = 100
# Queries compared with all rows at a time.
_QUERIES = 250
# A neighbour that is also among the rows must not stand before itself because of rounding.
_ROUNDING = 1e-6
_NAMES = ("learn", "queries", "nearest", "rows")


@dataclass(frozen=True)
class FrontierData:
    """Vectors to learn from, queries, the true nearest neighbour of each, and some rows of the base.

    Attributes:
        learn: (rows, columns) uint8.
        queries: (queries, columns).
        nearest: (queries, columns), the vector of the base that is nearest to each query.
        rows: (some rows, columns), drawn at random from the base.
        base_rows: number of all rows of the base.
    """

    learn: Tensor
    queries: Tensor
    nearest: Tensor
    rows: Tensor
    base_rows: int

    @classmethod
    def drawn(cls, vectors: VectorSet, *, n_queries: int, n_rows: int, seed: int) -> FrontierData:
        """Return the first queries of a set and random rows of its base."""
        drawn = np.sort(np.random.default_rng(seed).choice(len(vectors.base), n_rows, replace=False))
        truth = vectors.neighbors[:n_queries, 0]
        arrays = (vectors.learn, vectors.queries[:n_queries], vectors.base[truth], vectors.base[drawn])
        learn, queries, nearest, rows = (torch.from_numpy(np.array(array)) for array in arrays)
        return cls(learn, queries, nearest, rows, len(vectors.base))

    @classmethod
    def load(cls, path: Path, device: torch.device) -> FrontierData:
        """Return what `save` wrote, on a device."""
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            learn, queries, nearest, rows = (torch.from_numpy(kept[name]).to(device) for name in _NAMES)
            return cls(learn, queries, nearest, rows, int(kept["base_rows"]))

    def save(self, path: Path) -> None:
        """Write one compressed file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self, name).cpu().numpy() for name in _NAMES}
        np.savez_compressed(path, base_rows=np.int64(self.base_rows), **arrays)


@torch.inference_mode()
def frontier_scores(
    queries: Tensor, nearest: Tensor, rows: Tensor, probability: Probability, base_rows: int
) -> dict[str, float]:
    """Return means over the queries of a look-up within the radius, for the whole base.

    Args:
        queries: logits, (queries, bits).
        nearest: logits of each query's true neighbour.
        rows: logits of rows drawn from the base; every count of them is scaled up to `base_rows`.
        probability: how the loss foresees a distance.
        base_rows: number of rows in the base.

    Returns:
        comparisons: rows within the radius. candidates: rows that share a substring, each of the r + 1 counted.
        nearest_within: share of queries whose true neighbour is within the radius.
        recall_at_100: share whose true neighbour is also among the first 100 of these by the angle of the logits.
        predicted_comparisons, predicted_nearest_within: what the loss's estimate says of the same pairs.
        distance, predicted_distance: mean Hamming distance of a query and a row.
        spread: mean squared difference of a distance and the foreseen one, divided by the binomial variance. Normal,
            independent logits have .6 with "angle": their angle tells more than the chance of a single bit.
        bit_correlation: mean absolute correlation of two bits. independent_bits: as many independent bits would have
            the same sum of squared correlations.
    """
    times = base_rows / len(rows)
    cost = PairCost(N_BITS, (RADIUS,), probability)
    row_signs, row_units, row_angles = _signs(rows), units_of(rows, probability), F.normalize(rows, dim=1)
    found = near = compared = read = foreseen = distances = mean = squares = variance = 0.0
    for some, own in zip(queries.split(_QUERIES), nearest.split(_QUERIES), strict=True):
        signs, angles, units = _signs(some), F.normalize(some, dim=1), units_of(some, probability)
        apart = (N_BITS - signs @ row_signs.T) / 2
        within = apart <= RADIUS
        own_within = (signs * _signs(own)).sum(1) >= N_BITS - 2 * RADIUS
        closeness = (angles * F.normalize(own, dim=1)).sum(1, keepdim=True)
        ahead = (within & (angles @ row_angles.T > closeness + _ROUNDING)).sum(1)
        near += float(own_within.sum())
        found += float((own_within & (ahead * times < K)).sum())
        compared += float(within.sum())
        read += sum(
            float((signs[:, a:b] @ row_signs[:, a:b].T == b - a).sum()) for a, b in substring_bounds(N_BITS, RADIUS + 1)
        )
        differing = cost.differing(units @ row_units.T)[0].clamp(0, 1)
        foreseen += float(_within(differing).double().sum())
        distances += float(apart.double().sum())
        mean += float(differing.double().sum()) * N_BITS
        squares += float((apart - N_BITS * differing).pow(2).double().sum())
        variance += float((differing * (1 - differing)).double().sum()) * N_BITS
    n_queries, n_pairs = len(queries), len(queries) * len(rows)
    of_nearest = cost.differing((units_of(queries, probability) * units_of(nearest, probability)).sum(1))[0]
    correlation = _correlation(row_signs)
    off_diagonal = correlation.abs().sum() - correlation.diagonal().abs().sum()
    return {
        "comparisons": compared * times / n_queries,
        "candidates": read * times / n_queries,
        "nearest_within": near / n_queries,
        "recall_at_100": found / n_queries,
        "predicted_comparisons": foreseen * times / n_queries,
        "predicted_nearest_within": float(_within(of_nearest.clamp(0, 1)).mean()),
        "distance": distances / n_pairs,
        "predicted_distance": mean / n_pairs,
        "spread": squares / max(variance, 1e-9),
        "bit_correlation": float(off_diagonal) / (N_BITS * (N_BITS - 1)),
        "independent_bits": N_BITS**2 / float(correlation.pow(2).sum()),
    }


def _signs(logits: Tensor) -> Tensor:
    return torch.where(logits > 0, 1.0, -1.0)


def _within(differing: Tensor) -> Tensor:
    """Return the chance to be within the radius, F(r; n, P)."""
    return log_tails_continued(differing, N_BITS, RADIUS)[0].exp()


def _correlation(signs: Tensor) -> Tensor:
    centred = signs - signs.mean(0)
    deviation = centred.pow(2).mean(0).sqrt().clamp(min=1e-6)
    correlation: Tensor = (centred.T @ centred) / len(signs) / deviation / deviation[:, None]
    return correlation
