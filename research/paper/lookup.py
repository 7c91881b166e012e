"""Look up the queries of a set of vectors in its base, and count the work."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hamtarget import codes
from hamtarget.answer import Costs
from hamtarget.query import Asked, Work
from hamtarget.search import Answer, Embeddings, MultiIndex
from research.datasets.vector_sets import VectorSet
from research.threads import one_thread

# recall@100 is what the paper reports.
K = 100
# Queries searched at a time: bounds the memory of their hits.
_QUERIES = 500


class GivesLogits(Protocol):
    """An encoder, as far as a look-up needs it."""

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        ...

    def logits(self, inputs: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits)."""
        ...


def exact_lookup(encoder: GivesLogits, vectors: VectorSet, radius: int) -> dict[str, float]:
    """Return means over the queries of one exact look-up within `radius`, ranked by the angle of the logits.

    Returns:
        recall_at_100: share of queries whose true neighbour is among the first 100 hits (HDT-E).
        nearest_within: share whose true neighbour is within the radius: what a perfect ranking would reach.
        candidates: rows read from the tables, each table counted; comparisons: rows within the radius.
        empty: share of queries with nothing within the radius.
        queries_per_second: encoding, look-up and ranking together, on one thread, timed once.
    """
    base = encoder.logits(np.asarray(vectors.base))
    truth = vectors.neighbors[:, 0]
    index = MultiIndex(encoder.n_bits, radius, embeddings=Embeddings(encoder.n_bits, "float16", "cosine"))
    base_codes = codes.from_logits(base)
    index.add(np.arange(len(base)), base_codes, embeddings=base)
    found = candidates = comparisons = empty = 0
    start_time = time.perf_counter()
    with one_thread():
        queries = encoder.logits(np.asarray(vectors.queries))
        query_codes = codes.from_logits(queries)
        for start in range(0, len(queries), _QUERIES):
            block = slice(start, start + _QUERIES)
            found_here = index.search_batch(
                Asked(query_codes[block], embeddings=queries[block]), radius, rerank=K, work=Work(costs=True)
            )
            hits, costs = counted(found_here)
            found += nearest_found(hits, truth[block])
            candidates += int(costs.candidates.sum())
            comparisons += int(costs.comparisons.sum())
            empty += int((costs.comparisons == 0).sum())
    seconds = time.perf_counter() - start_time
    apart = np.unpackbits(query_codes ^ base_codes[truth], axis=1).sum(axis=1)
    n_queries = len(queries)
    return {
        "recall_at_100": found / n_queries,
        "nearest_within": float((apart <= radius).mean()),
        "candidates": candidates / n_queries,
        "comparisons": comparisons / n_queries,
        "empty": empty / n_queries,
        "queries_per_second": n_queries / seconds,
    }


def nearest_found(hits: Answer, truth: NDArray[np.int64]) -> int:
    """Return the number of queries whose true neighbour is among their hits."""
    return int((hits.ids == np.repeat(truth, np.diff(hits.offsets))).sum())


def counted(hits: Answer) -> tuple[Answer, Costs]:
    """Return the hits of a batch that was searched with `Work(costs=True)`, and the costs."""
    if hits.costs is None:
        raise TypeError("expected hits of a search with Work(costs=True)")
    return hits, hits.costs
