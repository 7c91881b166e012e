"""Searches of rows on a device: everything within a radius, or the nearest, exactly, in bounded memory.

All is built on one step, the scan: it reads a span of rows for some queries, each with a radius of its own, and writes
the hits as keys. Hits that do not fit are counted, and the step is done again in parts. For the nearest rows, spans
grow: the k-th distance so far is the radius of the next span.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget.search.device.keys import DISTANCE_BITS, QUERY_SHIFT, ROW_BITS, Answer, answer_of, join_answers
from hamtarget.search.device.portable_scan import BITS_OF_WORD, PortableScan, distances, keys_of, signs_of
from hamtarget.search.device.rows import Snapshot

# Queries that are scanned for at once: more would need more memory, and are no faster.
_QUERIES_AT_A_TIME = 4096
# Keys that a scan may write: 32 MB.
_CAPACITY = 1 << 22
# Distances that a search for the nearest begins with: of few queries, or of more.
_FEW_QUERIES = 8
_FEW_FIRST_CELLS = 4096
_FIRST_CELLS = 1 << 24
_MOST_FIRST_ROWS = 1 << 16
# Every span is so many times as long as all before it. More would find many rows that others replace; fewer would take
# many scans.
_LEAST_GROWTH = 4
_MOST_GROWTH = 256
# Hits of a span that are worth no further scan.
_CHEAP_HITS = 4096


class Scan(Protocol):
    """Finds rows within a radius; see `PortableScan.scan`."""

    def scan(
        self,
        words: Tensor,
        queries: NDArray[np.int32],
        radii: NDArray[np.int32],
        allowed: Tensor | None,
        span: range,
        capacity: int,
    ) -> tuple[int, NDArray[np.int64]]:
        """Return how many hits there are in a span of rows, and their keys; none if they are more than `capacity`."""
        ...


class WorkLimits(Protocol):
    """Bounds on the work; see `hamtarget.Bounds`."""

    def check(self) -> None:
        """Raise an error if there is no time left."""
        ...

    def take(self, *, rows: int = 0, hits: int = 0, bytes: int = 0) -> None:
        """Count work; raise an error if it is too much."""
        ...


def scan_for(device: torch.device) -> Scan:
    """Return the fastest scan that a device can run."""
    if device.type == "cuda":
        try:
            from hamtarget.search.device.triton_scan import TritonScan
        except ImportError:
            return PortableScan()
        return TritonScan()
    return PortableScan()


class DeviceSearch:
    """Searches of one snapshot of rows."""

    def __init__(
        self, rows: Snapshot, scan: Scan, *, allowed: Tensor | None = None, limits: WorkLimits | None = None
    ) -> None:
        """Remember what is searched.

        Args:
            rows: the rows.
            scan: how they are read.
            allowed: bool of each row on the device, if only some may be hits.
            limits: bounds on the work.
        """
        self._words = rows.words
        self._n_rows = len(rows.ids)
        self._scan = scan
        self._allowed = allowed
        self._limits = limits

    def within(self, queries: NDArray[np.int32], radius: int, limit: int | None) -> Answer:
        """Return the rows within a radius of each query, given by its words, or the first `limit` of them."""
        parts = []
        for start in range(0, max(1, len(queries)), _QUERIES_AT_A_TIME):
            block = queries[start : start + _QUERIES_AT_A_TIME]
            self._take(rows=len(block) * self._n_rows)
            if len(block) == 0 or self._n_rows == 0:
                keys = np.empty(0, np.int64)
            elif limit is not None and limit < self._n_rows:
                keys = self._nearest(block, radius, limit)
            else:
                keys = self._collect(block, np.full(len(block), radius, np.int32), range(self._n_rows))
            self._take(hits=len(keys))
            parts.append(answer_of(keys, len(block)))
        return join_answers(parts)

    def _take(self, *, rows: int = 0, hits: int = 0) -> None:
        if self._limits is not None:
            self._limits.check()
            self._limits.take(rows=rows, hits=hits)

    def _collect(self, queries: NDArray[np.int32], radii: NDArray[np.int32], span: range) -> NDArray[np.int64]:
        """Return the keys of all hits in a span, ascending."""
        count, keys = self._scan.scan(self._words, queries, radii, self._allowed, span, _CAPACITY)
        if count <= _CAPACITY:
            return keys
        if self._limits is not None:
            self._limits.check()
        # A quarter more parts than needed, since parts differ.
        n_parts = -(-count * 5 // (4 * _CAPACITY))
        if len(queries) > 1:
            size = -(-len(queries) // n_parts)
            starts = range(0, len(queries), size)
            parts = [self._collect(queries[s : s + size], radii[s : s + size], span) for s in starts]
            return np.concatenate([part + (s << QUERY_SHIFT) for s, part in zip(starts, parts, strict=True)])
        size = -(-len(span) // n_parts)
        spans = [span[s : s + size] for s in range(0, len(span), size)]
        return np.sort(np.concatenate([self._collect(queries, radii, part) for part in spans]))

    def _nearest(self, queries: NDArray[np.int32], radius: int, k: int) -> NDArray[np.int64]:
        """Return the keys of the k nearest rows of each query within a radius, ascending."""
        n_queries = len(queries)
        growth = min(_MOST_GROWTH, max(_LEAST_GROWTH, _CHEAP_HITS // (k * n_queries)))
        if n_queries <= _FEW_QUERIES:
            # Of the first rows, all are hits.
            done, best = 0, np.empty(0, np.int64)
            stop = max(_FEW_FIRST_CELLS // n_queries, 4 * k)
        else:
            done = min(self._n_rows, max(min(_FIRST_CELLS // n_queries, _MOST_FIRST_ROWS), 4 * k))
            best = self._first_nearest(queries, radius, k, done)
            stop = done + done * growth
        while done < self._n_rows:
            stop = min(self._n_rows, stop)
            # A later row loses against an earlier one at the same distance: its id is larger.
            radii = _kth_distances(best, n_queries, k, otherwise=radius + 1) - 1
            found = self._collect(queries, radii, range(done, stop))
            best = _first_of_each(best, found, n_queries, k)
            done, stop = stop, stop + stop * growth
        return best

    def _first_nearest(self, queries: NDArray[np.int32], radius: int, k: int, n_rows: int) -> NDArray[np.int64]:
        """Return the same of the first rows, of which there are few: by the distances of all."""
        device = self._words.device
        signs = signs_of(torch.tensor(queries, device=device))
        # A distance and a row in one number. Short ones are chosen from in half of the time.
        kind = torch.int32 if n_rows * (BITS_OF_WORD * self._words.shape[1] + 1) < 1 << 31 else torch.int64
        rows = torch.arange(n_rows, dtype=kind, device=device)
        step = max(1, _FIRST_CELLS // n_rows)
        parts = []
        for start in range(0, len(queries), step):
            ranks = distances(self._words[:n_rows], signs[start : start + step]).to(kind) * n_rows + rows
            if self._allowed is not None:
                ranks.masked_fill_(~self._allowed[:n_rows], torch.iinfo(kind).max)
            first = ranks.topk(min(k, n_rows), dim=1, largest=False, sorted=True).values
            query, place = torch.nonzero(first < (radius + 1) * n_rows, as_tuple=True)
            rank = first[query, place]
            parts.append(keys_of(start + query, rank // n_rows, rank % n_rows))
        return torch.cat(parts).cpu().numpy()


def _starts(keys: NDArray[np.int64], n_queries: int) -> NDArray[np.int64]:
    """Return where the ascending keys of each query begin, and where the last ones end."""
    return np.searchsorted(keys, np.arange(n_queries + 1) << QUERY_SHIFT)


def _kth_distances(keys: NDArray[np.int64], n_queries: int, k: int, *, otherwise: int) -> NDArray[np.int32]:
    """Return the distance of the k-th hit of each query, given its ascending keys; `otherwise` if it has fewer."""
    starts = _starts(keys, n_queries)
    result = np.full(n_queries, otherwise, np.int32)
    has_k = np.diff(starts) >= k
    result[has_k] = keys[starts[:-1][has_k] + (k - 1)] >> ROW_BITS & ((1 << DISTANCE_BITS) - 1)
    return result


def _first_of_each(some: NDArray[np.int64], others: NDArray[np.int64], n_queries: int, k: int) -> NDArray[np.int64]:
    """Return the smallest k keys of each query among two ascending arrays, ascending."""
    # This way of sorting merges arrays that ascend.
    keys = np.sort(np.concatenate((some, others)), kind="stable")
    starts = _starts(keys, n_queries)
    ranks = np.arange(len(keys)) - np.repeat(starts[:-1], np.diff(starts))
    return keys[ranks < k]


def allowed_rows(
    rows: Snapshot, ids: NDArray[np.int64] | None, mask: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """Return which rows a filter allows, by ids that ascend or by a mask over ids; None where there is no filter."""
    if ids is not None:
        allowed = np.zeros(len(rows.ids), dtype=bool)
        places = np.searchsorted(rows.ids, ids)
        known = places < len(rows.ids)
        places = places[known]
        allowed[places[rows.ids[places] == ids[known]]] = True
        return allowed
    if mask is not None:
        inside = (rows.ids >= 0) & (rows.ids < len(mask))
        allowed = np.zeros(len(rows.ids), dtype=bool)
        allowed[inside] = mask[rows.ids[inside]]
        return allowed
    return None
