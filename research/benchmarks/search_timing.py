"""Time searches fairly: compare exact results first, then time all methods in turns and take the median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.benchmarks.search_methods import Found, Method
from research.benchmarks.search_sets import CodeSet

# A repeat of one method takes at most about this long. Slower methods get the first queries of the batch.
_SECONDS_A_REPEAT = 4.0
_BATCHES = (10_000, 5_000, 2_000, 1_000, 500, 200, 100)
_TRIAL_QUERIES = 100
# A short call is timed repeatedly within its turn, so that a short disturbance cannot decide the median.
_SECONDS_A_TURN = 0.1

Search = Callable[[NDArray[np.uint8]], Found]


def seconds(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes. Its result is freed after the clock has stopped."""
    start = time.perf_counter()
    result = call()
    took = time.perf_counter() - start
    del result
    return took


def in_turns(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every call, called in turns A B C A B C ..., so that a slow moment does not hit one alone.

    There are `repeats` turns of one call each, or, for short calls, of several.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            turn = [seconds(call)]
            while sum(turn) < _SECONDS_A_TURN:
                turn.append(seconds(call))
            times[name] += turn
    return times


def batch_size(search: Search, queries: NDArray[np.uint8], most: int) -> int:
    """Return how many of the queries one repeat can take."""
    trial = queries[:_TRIAL_QUERIES]
    search(trial)
    each = seconds(lambda: search(trial)) / max(1, len(trial))
    sizes = [size for size in _BATCHES if size <= most]
    size = next((size for size in sizes if size * each <= _SECONDS_A_REPEAT), sizes[-1])
    return min(size, len(queries))


def canonical(method: Method, found: Found, n_queries: int) -> NDArray[np.int64]:
    """Return query, row and distance of each hit of the first `n_queries` queries as one number, ascending."""
    offsets, ids, distances = found
    bounds = offsets[: n_queries + 1].astype(np.int64)
    n_hits = int(bounds[-1])
    query = np.repeat(np.arange(n_queries, dtype=np.int64), np.diff(bounds))
    hits = query << 40 | method.rows(ids[:n_hits]) << 12 | distances[:n_hits].astype(np.int64)
    hits.sort()
    return hits


def check_equal(found: Mapping[str, tuple[Method, Found]]) -> int:
    """Return the number of hits that all methods agree on, over the queries that all of them were given.

    Raises:
        RuntimeError: two methods differ. The error names them and the first query in which they differ.
    """
    n_queries = min(len(offsets) - 1 for _, (offsets, _, _) in found.values())
    names = list(found)
    first = canonical(*found[names[0]], n_queries)
    for name in names[1:]:
        other = canonical(*found[name], n_queries)
        if not np.array_equal(first, other):
            query = int(np.setxor1d(first, other)[0] >> 40)
            raise RuntimeError(
                f"{names[0]} finds {len(first):,} hits and {name} {len(other):,} for the same {n_queries:,} queries; "
                f"they differ first in query {query}: one of them is wrong, nothing was timed"
            )
    return len(first)


def race(
    methods: Sequence[Method],
    searches: Mapping[str, Search],
    queries: NDArray[np.uint8],
    sizes: Mapping[str, int],
    repeats: int,
) -> list[dict[str, Any]]:
    """Return the queries per second of each method, ready for JSON. `searches` and `sizes` are by the method's name."""
    calls = {str(method): partial(searches[str(method)], queries[: sizes[str(method)]]) for method in methods}
    times = in_turns(calls, repeats)
    result = []
    for method in methods:
        took, size = times[str(method)], sizes[str(method)]
        row = {"method": method.name, "setting": method.setting, "exact": method.exact, "n_queries": size}
        result.append({**row, **_summary(took), "queries_per_second": size / statistics.median(took)})
    return result


def radius_race(code_set: CodeSet, methods: Sequence[Method], repeats: int) -> dict[str, Any]:
    """Compare the hits of `methods`, all of them exact, with those of the first, then time them.

    Raises:
        RuntimeError: two methods do not find the same.
    """
    searches: dict[str, Search] = {str(method): _within(method, code_set.radius) for method in methods}
    sizes = _sizes(methods, searches, code_set.queries)
    reference = methods[0]
    wanted = searches[str(reference)](code_set.queries[: sizes[str(reference)]])
    compared = {}
    # Compared in pairs, over all queries that both were given, so that a slow scan does not limit the others.
    for method in methods[1:]:
        found = searches[str(method)](code_set.queries[: sizes[str(method)]])
        n_hits = check_equal({str(reference): (reference, wanted), str(method): (method, found)})
        compared[str(method)] = {"queries": min(len(wanted[0]), len(found[0])) - 1, "hits": n_hits}
    del wanted, found
    rows = race(methods, searches, code_set.queries, sizes, repeats)
    return {"equal_to": str(reference), "compared": compared, "rows": rows}


def nearest_race(code_set: CodeSet, methods: Sequence[Method], k: int, repeats: int) -> dict[str, Any]:
    """Time the k nearest, after comparing the distances of exact methods and measuring the recall of others.

    A found row counts for the recall if it is no farther than the true k-th one. It does not matter which of equally
    far rows is found.

    Raises:
        RuntimeError: two exact methods find different distances.
    """
    searches: dict[str, Search] = {str(method): _k_nearest(method, k) for method in methods}
    size = min(len(code_set.queries), *(method.most_queries for method in methods), 500)
    distances = {
        str(method): searches[str(method)](code_set.queries[:size])[2].reshape(size, -1).astype(np.int64)
        for method in methods
    }
    truth = distances[str(methods[0])]
    recalls = {name: float((found <= truth[:, -1:]).mean()) for name, found in distances.items()}
    for method in methods:
        if method.exact and not np.array_equal(np.sort(distances[str(method)]), truth):
            raise RuntimeError(f"{methods[0]} and {method} find different distances of the {k} nearest")
    rows = race(methods, searches, code_set.queries, _sizes(methods, searches, code_set.queries), repeats)
    for method, row in zip(methods, rows, strict=True):
        row["recall"] = recalls[str(method)]
    return {"k": k, "queries_compared": size, "rows": rows}


def build_race(code_set: CodeSet, methods: Sequence[Method], repeats: int) -> list[dict[str, Any]]:
    """Return the rows per second from an empty index to the first answer: what is put off until a search counts."""
    ids = np.arange(len(code_set.codes))

    def ready(method: Method) -> Found:
        method.build(code_set.codes, ids)
        return method.search(code_set.queries[:1], code_set.radius)

    times: dict[str, list[float]] = {str(method): [] for method in methods}
    for _ in range(repeats):
        for method in methods:
            # Freeing the old index is not part of building.
            method.index = None
            times[str(method)].append(seconds(partial(ready, method)))
    return [
        {
            "method": method.name,
            "setting": method.setting,
            **_summary(times[str(method)]),
            "rows_per_second": len(ids) / statistics.median(times[str(method)]),
        }
        for method in methods
    ]


def one_by_one(code_set: CodeSet, search: Callable[[Any], object], repeats: int) -> dict[str, float]:
    """Return the microseconds of a search with one query: median and 99th percentile, each the median of `repeats`."""
    queries = list(code_set.queries)
    medians, tails = [], []
    for _ in range(repeats):
        times = np.empty(len(queries), dtype=np.int64)
        for place, query in enumerate(queries):
            start = time.perf_counter_ns()
            search(query)
            times[place] = time.perf_counter_ns() - start
        medians.append(float(np.median(times)) / 1e3)
        tails.append(float(np.quantile(times, 0.99)) / 1e3)
    return {"n_queries": len(queries), "median_us": statistics.median(medians), "p99_us": statistics.median(tails)}


def _sizes(methods: Sequence[Method], searches: Mapping[str, Search], queries: NDArray[np.uint8]) -> dict[str, int]:
    return {str(method): batch_size(searches[str(method)], queries, method.most_queries) for method in methods}


def _summary(times: Sequence[float]) -> dict[str, Any]:
    return {"n_repeats": len(times), "seconds": statistics.median(times), "seconds_range": [min(times), max(times)]}


def _within(method: Method, radius: int) -> Search:
    return lambda queries: method.search(queries, radius)


def _k_nearest(method: Method, k: int) -> Search:
    return lambda queries: method.nearest(queries, k)
