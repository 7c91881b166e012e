"""Run hamtarget in ann-benchmarks: a NeighborIndex for vectors, exact nearest codes for bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from ann_benchmarks.algorithms.base.module import BaseANN
from numpy.typing import NDArray

from hamtarget import MultiIndex
from hamtarget.search import NeighborIndex, planning

_METRICS = {"euclidean": "l2", "angular": "cosine"}


class HamtargetVectors(BaseANN):
    """Euclidean and angular nearest neighbours by a `NeighborIndex`.

    Args:
        metric: "euclidean" or "angular".
    """

    def __init__(self, metric: str) -> None:
        if metric not in _METRICS:
            raise NotImplementedError(f"metric is {metric!r}; HamtargetVectors knows {' and '.join(_METRICS)}")
        self.metric = metric
        self.setting: dict[str, Any] = {}

    def fit(self, X: NDArray[Any]) -> None:
        """Index the rows, on one thread for each core; searches use one."""
        rows = self._ready(X)
        # Bytes, such as SIFT's, come as floats; as bytes they take a quarter of the memory, without loss.
        if self.metric == "euclidean" and np.all((rows == np.rint(rows)) & (rows >= 0) & (rows <= 255)):
            rows = rows.astype(np.uint8)
        self.index = NeighborIndex(_METRICS[self.metric]).fit(rows)

    def set_query_arguments(
        self, recall: float | None, budget: int | None = None, comparisons: int | None = None
    ) -> None:
        """Set the wanted recall; or, with None, how many rows a query reads and how many of them it compares."""
        chosen = {"budget": budget, "comparisons": comparisons} if recall is None else {"recall": recall}
        self.setting = {name: value for name, value in chosen.items() if value is not None}

    def query(self, q: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Return the row numbers of the n nearest that were found, nearest first."""
        return self._found(q[None], n)[0]

    def batch_query(self, X: NDArray[Any], n: int) -> None:
        """Search for all rows of X. `get_batch_results` returns what was found."""
        self.results = self._found(X, n)

    def get_batch_results(self) -> list[NDArray[np.int64]]:
        """Return the row numbers of the nearest for each row of the last batch, nearest first."""
        return self.results

    def freeIndex(self) -> None:
        """Free the memory of the index."""
        self.index = None

    def __str__(self) -> str:
        """Return the name of the run in plots and result files."""
        return f"hamtarget({', '.join(f'{name}={value}' for name, value in self.setting.items())})"

    def _found(self, rows: NDArray[Any], n: int) -> list[NDArray[np.int64]]:
        ids = self.index.nearest_batch(self._ready(rows), n, **self.setting).ids
        return [found[found >= 0] for found in ids]

    def _ready(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        ready = np.ascontiguousarray(rows, dtype=np.float32)
        if self.metric == "angular":
            # A row of zeros has no direction; any will do.
            ready = np.where(ready.any(axis=1, keepdims=True), ready, np.eye(1, ready.shape[1], dtype=np.float32))
        return ready


class HamtargetBits(BaseANN):
    """The exact nearest bit strings by Hamming distance, without learning.

    Args:
        metric: "hamming".
    """

    def __init__(self, metric: str) -> None:
        if metric != "hamming":
            raise NotImplementedError(f"metric is {metric!r}; HamtargetBits knows hamming")

    def fit(self, X: NDArray[Any]) -> None:
        """Index the rows, whose columns are bits."""
        codes = _packed(X)
        n_bits = 8 * codes.shape[1]
        self.index = MultiIndex(n_bits, radius=planning.recommended_radius(len(codes), n_bits))
        self.index.add(np.arange(len(codes)), codes)

    def query(self, q: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Return the row numbers of the n nearest, nearest first."""
        return self.index.nearest_batch(_packed(q[None]), n).ids

    def batch_query(self, X: NDArray[Any], n: int) -> None:
        """Search for all rows of X. `get_batch_results` returns what was found."""
        hits = self.index.nearest_batch(_packed(X), n)
        self.results = np.split(hits.ids, hits.offsets[1:-1])

    def get_batch_results(self) -> list[NDArray[np.int64]]:
        """Return the row numbers of the nearest for each row of the last batch, nearest first."""
        return self.results

    def freeIndex(self) -> None:
        """Free the memory of the index."""
        self.index = None

    def __str__(self) -> str:
        """Return the name of the run in plots and result files."""
        return "hamtarget(exact)"


def _packed(bits: NDArray[Any]) -> NDArray[np.uint8]:
    """Pack bits into codes. The last byte is filled with zeros, which do not change distances."""
    return np.packbits(np.asarray(bits) != 0, axis=1, bitorder="little")
