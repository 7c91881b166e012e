"""Measure query-directed probing of a set of vectors: how soon it reads the true neighbour, and at what cost."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hamtarget import codes
from hamtarget.answer import Costs
from hamtarget.encoders.linear import LinearEncoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.progress import Progress
from hamtarget.query import Asked, Query, Work
from hamtarget.search import Answer, Embeddings, MultiIndex, unit_int8
from research.datasets.vector_sets import VectorSet
from research.paper.lookup import K, counted, nearest_found
from research.threads import one_thread

Ranking = Literal["vectors", "logits"]

# Queries whose costs for all rows are computed together: 0.4 GB for a million rows.
_QUERIES = 100


def nearest_read(
    encoder: Encoder | LinearEncoder,
    vectors: VectorSet,
    *,
    substrings: int,
    reads: Sequence[int],
    progress: Progress | None = None,
) -> dict[int, float]:
    """Return, for each number of rows read, the share of queries whose true neighbour is among them.

    Rows come in query-directed order: a row at the smallest sum, over its substrings, of |logit| over the bits in which
    the substring differs from the query's. Rows at one cost come in no particular order: half of them count as read
    before the neighbour.

    Args:
        encoder: returns codes of the base and logits of the queries.
        vectors: the set.
        substrings: number of tables.
        reads: numbers of rows.
        progress: called with the number of queries done and of all.
    """
    signs = np.where(encoder.logits(np.asarray(vectors.base)) > 0, np.float32(1), np.float32(-1))
    queries = encoder.logits(np.asarray(vectors.queries))
    truth = vectors.neighbors[:, 0]
    bounds = codes.substring_bounds(encoder.n_bits, substrings)
    places = np.empty(len(queries))
    for start in range(0, len(queries), _QUERIES):
        some = _whole_numbers(queries[start : start + _QUERIES])
        # Twice the cost is sum of |logit| - logits . signs.
        cost = np.full((len(some), len(signs)), np.inf, dtype=np.float32)
        for first, last in bounds:
            own = some[:, first:last]
            twice = own @ signs[:, first:last].T
            np.subtract(np.abs(own).sum(axis=1, keepdims=True), twice, out=twice)
            np.minimum(cost, twice, out=cost)
        of_truth = np.take_along_axis(cost, truth[start : start + _QUERIES, None], axis=1)
        before, equal = (cost < of_truth).sum(axis=1), (cost == of_truth).sum(axis=1)
        places[start : start + len(some)] = before + equal / 2
        if progress is not None:
            progress(start + len(some), len(queries))
    return {read: float((places < read).mean()) for read in reads}


def index_read(
    encoder: Encoder | LinearEncoder, vectors: VectorSet, *, substrings: int, reads: Sequence[int]
) -> dict[int, float]:
    """Return the same as `nearest_read` by the index's own order and count.

    The index numbers its buckets by fewer bits than a long substring has, and a row that two tables lead to counts
    twice. All queries are probed; nothing is left out by distance.

    Args:
        encoder: returns codes of the base and logits of the queries.
        vectors: the set.
        substrings: number of tables.
        reads: budgets, in rows.
    """
    index = MultiIndex(encoder.n_bits, substrings - 1)
    index.add(np.arange(len(vectors.base)), encoder.encode(np.asarray(vectors.base)))
    queries, truth = encoder.logits(np.asarray(vectors.queries)), vectors.neighbors[:, 0]
    widest = encoder.n_bits - 1
    found = dict.fromkeys(reads, 0)
    for start in range(0, len(queries), _QUERIES):
        block = slice(start, start + _QUERIES)
        for read in reads:
            found[read] += nearest_found(
                index.search_batch(Asked(logits=queries[block]), budget=read, radius=widest), truth[block]
            )
    return {read: count / len(queries) for read, count in found.items()}


def _whole_numbers(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale and round each row so that its sums are exact in float32: equal substrings then have equal costs."""
    largest = np.maximum(np.abs(logits).sum(axis=1, keepdims=True), np.float32(1e-30))
    whole: NDArray[np.float32] = np.rint(logits * (np.float32(2**22) / largest))
    return whole


@dataclass(frozen=True)
class ProbedIndex:
    """A base in a `MultiIndex`, ready to be probed.

    Attributes:
        encoder: the encoder of base and queries.
        index: the codes, and embeddings to rank by.
        ranking: the kind of embeddings: the vectors themselves, or the encoder's logits.
        shift: subtracted from bytes, so that they fit int8; distances stay the same. 0 if nothing is shifted.
    """

    encoder: Encoder | LinearEncoder
    index: MultiIndex
    ranking: Ranking
    shift: int

    @classmethod
    def of(
        cls, encoder: Encoder | LinearEncoder, vectors: VectorSet, *, substrings: int, ranking: Ranking
    ) -> ProbedIndex:
        """Return the base of `vectors` in an index of `substrings` tables.

        Vectors to rank by are kept in int8 if they are bytes, without loss, and in float16 otherwise.
        """
        base = np.asarray(vectors.base)
        logits = encoder.logits(base)
        shift = 0
        if ranking == "logits":
            kind, rows = Embeddings(encoder.n_bits, "int8", "cosine"), unit_int8(logits)
        elif base.dtype == np.uint8:
            shift = 128
            kind, rows = Embeddings(base.shape[1], "int8", "l2"), _shifted(base, shift)
        else:
            kind, rows = Embeddings(base.shape[1], "float16", "l2"), base
        index = MultiIndex(encoder.n_bits, substrings - 1, embeddings=kind)
        index.add(np.arange(len(base)), codes.from_logits(logits), embeddings=rows)
        return cls(encoder, index, ranking, shift)

    def bytes_per_row(self) -> float:
        """Return the size of the index's file, embeddings included, divided by the rows."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "index.ham"
            self.index.save(path)
            return path.stat().st_size / len(self.index)

    def search(self, queries: NDArray[Any], budget: int, comparisons: int) -> tuple[Answer, Costs]:
        """Encode queries, probe, rank, and return hits and costs."""
        logits = self.encoder.logits(queries)
        rows = queries if self.ranking == "vectors" else unit_int8(logits)
        if self.shift:
            rows = _shifted(queries, self.shift)
        # Everything that is read may be a hit: which rows are compared is up to their asymmetric distance.
        widest = self.encoder.n_bits - 1
        return counted(
            self.index.answer(
                Asked(logits=logits, embeddings=rows),
                Query(widest, budget=budget, comparisons=comparisons, rerank=K),
                Work(costs=True),
            )
        )

    def measure(self, vectors: VectorSet, settings: Sequence[tuple[int, int]], *, repeats: int) -> list[dict[str, Any]]:
        """Measure recall, cost and speed, on one thread, of each (budget, comparisons); ready for JSON."""
        queries, truth = np.asarray(vectors.queries), vectors.neighbors[:, 0]
        size = self.bytes_per_row()
        seconds: list[list[float]] = [[] for _ in settings]
        cpu_seconds: list[list[float]] = [[] for _ in settings]
        records: list[dict[str, Any]] = []
        with one_thread():
            # Timed in turns, so that a slow moment of the machine does not hit one setting alone.
            for repeat in range(repeats):
                for place, (budget, comparisons) in enumerate(settings):
                    start, cpu_start = time.perf_counter(), time.process_time()
                    hits, costs = self.search(queries, budget, comparisons)
                    seconds[place].append(time.perf_counter() - start)
                    cpu_seconds[place].append(time.process_time() - cpu_start)
                    if repeat:
                        continue
                    records.append(
                        {
                            "setting": {"budget": budget, "comparisons": comparisons},
                            "recall_at_100": nearest_found(hits, truth) / len(queries),
                            "candidates": float(costs.candidates.mean()),
                            "comparisons": float(costs.comparisons.mean()),
                            "buckets": float(costs.buckets.mean()),
                            "bytes_per_row": size,
                        }
                    )
        for record, took, used in zip(records, seconds, cpu_seconds, strict=True):
            record["queries_per_second"] = len(queries) / statistics.median(took)
            # Where the machine is shared, this is what an idle one would come near to.
            record["queries_per_cpu_second"] = len(queries) / statistics.median(used)
        return records


def _shifted(vectors: NDArray[Any], shift: int) -> NDArray[np.int8]:
    shifted: NDArray[np.int8] = (vectors.astype(np.int16) - shift).astype(np.int8)
    return shifted
