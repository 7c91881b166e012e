"""Run hamtarget in ann-benchmarks: probing with re-ranking for vectors, exact nearest codes for bits."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from ann_benchmarks.algorithms.base.module import BaseANN
from numpy.typing import NDArray

from hamtarget import HashEncoder, MultiIndex, OnnxEncoder
from hamtarget.learn import TrainingOptions
from hamtarget.search import Embeddings, planning

# Finding exact neighbours of more rows than this would take longer than learning.
_LEARNED_ROWS = 100_000
_ROWS_AT_A_TIME = 65_536


class HamtargetVectors(BaseANN):
    """Euclidean and angular nearest neighbours: learned codes are probed, and the rows read are ranked by distance.

    Args:
        metric: "euclidean" or "angular".
        n_bits: bits of a code.
        steps: batches that the encoder is trained on.
    """

    def __init__(self, metric: str, n_bits: int = 64, steps: int = 2000) -> None:
        if metric not in ("euclidean", "angular"):
            raise NotImplementedError(f"metric is {metric!r}; HamtargetVectors knows euclidean and angular")
        self.metric = metric
        self.n_bits = n_bits
        self.steps = steps
        self.budget = 4000
        self.comparisons: int | None = None

    def fit(self, X: NDArray[Any]) -> None:
        """Learn codes of a sample of the rows, and index all of them."""
        rows = self._ready(X)
        chosen = np.random.default_rng(0).permutation(len(rows))[:_LEARNED_ROWS]
        encoder = HashEncoder(self.n_bits, training=TrainingOptions(steps=self.steps)).fit(rows[np.sort(chosen)])
        with tempfile.TemporaryDirectory() as folder:
            # For one query at a time, onnxruntime takes a fraction of the time of torch.
            self.encoder = OnnxEncoder(encoder.export_onnx(folder), threads=1)
        # Bytes, such as SIFT's, are shifted to the range of int8: the same distances in a quarter of the memory.
        self.bytes = self.metric == "euclidean" and bool(np.all((rows == np.rint(rows)) & (rows >= 0) & (rows <= 255)))
        kind = Embeddings(
            rows.shape[1], "int8" if self.bytes else "float32", "cosine" if self.metric == "angular" else "l2"
        )
        self.index = MultiIndex(self.n_bits, radius=2, embeddings=kind)
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            block = rows[start : start + _ROWS_AT_A_TIME]
            ids = np.arange(start, start + len(block))
            self.index.add(ids, self.encoder.encode(block), embeddings=self._stored(block))
        self.index.compact()

    def set_query_arguments(self, budget: int, comparisons: int | None = None) -> None:
        """Set how many rows a query reads, and how many of them it compares by true distance (all if not given)."""
        self.budget = budget
        self.comparisons = comparisons

    def query(self, q: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Return the row numbers of the n nearest that were found, nearest first."""
        return self._probe(self._ready(q[None]), n)[0]

    def batch_query(self, X: NDArray[Any], n: int) -> None:
        """Search for all rows of X. `get_batch_results` returns what was found."""
        self.results = self._probe(self._ready(X), n)

    def get_batch_results(self) -> list[NDArray[np.int64]]:
        """Return the row numbers of the nearest for each row of the last batch, nearest first."""
        return self.results

    def freeIndex(self) -> None:
        """Free the memory of the index."""
        self.index = None

    def __str__(self) -> str:
        """Return the name of the run in plots and result files."""
        return (
            f"hamtarget(n_bits={self.n_bits}, steps={self.steps}, budget={self.budget}, comparisons={self.comparisons})"
        )

    def _probe(self, rows: NDArray[np.float32], n: int) -> list[NDArray[np.int64]]:
        hits = self.index.probe_batch(
            self.encoder.logits(rows),
            self.budget,
            radius=self.n_bits - 1,
            rerank=n,
            embedding=self._stored(rows),
            comparisons=self.comparisons,
        )
        return np.split(hits.ids, hits.offsets[1:-1])

    def _ready(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        ready = np.ascontiguousarray(rows, dtype=np.float32)
        if self.metric == "angular":
            # Codes are learned of directions; a row of zeros has none, and stays as it is.
            lengths = np.linalg.norm(ready, axis=1, keepdims=True)
            ready = ready / np.where(lengths > 0, lengths, 1)
        return ready

    def _stored(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        # Queries that are not bytes, although the rows are, would be rounded; ann-benchmarks has no such set.
        return (np.clip(np.rint(rows), 0, 255) - 128).astype(np.int8) if self.bytes else rows


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
