"""Model the cost of the join in Spark by rows sent and pairs compared, fitted to small runs, checked on larger ones.

    core seconds = fixed + a_row * rows sent + a_pair * pairs compared
    bytes sent   = bytes_a_row * rows sent

Rows sent are (radius + 1) N. Pairs compared are counted or, for uniform codes, (radius + 1) N^2 / 2^(n / (radius + 1)):
a set joined with itself meets every pair in both orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hamtarget.codes import Codes, substring_bounds
from hamtarget.search.planning import expected_candidates


@dataclass(frozen=True)
class CostModel:
    """Seconds of one core and bytes, by the work done."""

    fixed: float
    a_row: float
    a_pair: float
    bytes_a_row: float

    def core_seconds(self, rows_sent: float, pairs: float) -> float:
        """Return the seconds of all tasks together."""
        return self.fixed + self.a_row * rows_sent + self.a_pair * pairs


@dataclass(frozen=True)
class Cluster:
    """Machines that are assumed, not measured."""

    machines: int = 100
    cores: int = 16
    network_bytes_a_second: float = 1.25e9
    dollars_an_hour: float = 1.0
    busy: float = 0.5
    """Share of the time that cores work; the rest is stragglers, garbage collection and waiting."""


def pairs_compared(codes: Codes, radius: int) -> int:
    """Count the pairs that meet in the buckets of all substrings, in both orders and each row with itself."""
    words = codes.view("<u8").ravel()
    total = 0
    for start, stop in substring_bounds(64, radius + 1):
        _, counts = np.unique(words >> np.uint64(start) & np.uint64((1 << stop - start) - 1), return_counts=True)
        total += int((counts.astype(np.int64) ** 2).sum())
    return total


def fit(small: Sequence[Mapping[str, Any]], crowded: Mapping[str, Any]) -> CostModel:
    """Fit the model to two sizes of light codes and to one run in which pairs are nearly all of the cost.

    Each run has `rows_sent`, `pairs`, `core_seconds` and `shuffled_bytes`.
    """
    runs = [*small, crowded]
    parts = np.array([[1.0, run["rows_sent"], run["pairs"]] for run in runs])
    fixed, a_row, a_pair = np.linalg.solve(parts, np.array([run["core_seconds"] for run in runs])).tolist()
    bytes_a_row = float(np.mean([run["shuffled_bytes"] / run["rows_sent"] for run in small]))
    return CostModel(fixed, a_row, a_pair, bytes_a_row)


def check(model: CostModel, run: Mapping[str, Any]) -> dict[str, float]:
    """Return the model's prediction of a run beside what was measured."""
    seconds, sent = model.core_seconds(run["rows_sent"], run["pairs"]), model.bytes_a_row * run["rows_sent"]
    return {
        "rows": run["rows"],
        "core_seconds": seconds,
        "core_seconds_measured": run["core_seconds"],
        "core_seconds_ratio": seconds / run["core_seconds"],
        "shuffled_bytes": sent,
        "shuffled_bytes_measured": run["shuffled_bytes"],
        "shuffled_bytes_ratio": sent / run["shuffled_bytes"],
    }


def extrapolate(model: CostModel, cluster: Cluster, *, n_rows: int, n_bits: int, radius: int) -> dict[str, Any]:
    """Predict the join of uniform codes on these machines; nothing of it is measured."""
    rows_sent = (radius + 1) * n_rows
    pairs = n_rows * expected_candidates(n_rows, n_bits, radius)
    seconds = model.core_seconds(rows_sent, pairs)
    sent = model.bytes_a_row * rows_sent
    computing = seconds / (cluster.machines * cluster.cores * cluster.busy)
    # Nearly all data goes over the network, out of all machines at once.
    sending = sent / (cluster.machines * cluster.network_bytes_a_second)
    wall = computing + sending
    return {
        "cluster": asdict(cluster),
        "rows": n_rows,
        "n_bits": n_bits,
        "radius": radius,
        "rows_sent": rows_sent,
        "pairs": pairs,
        "core_seconds": seconds,
        "shuffled_bytes": sent,
        "input_bytes": n_rows * (8 + n_bits // 8),
        "computing_seconds": computing,
        "sending_seconds": sending,
        "dollars": wall / 3600 * cluster.machines * cluster.dollars_an_hour,
    }
