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
from hamtarget.search.device.portable_scan import PortableScan, distances, keys_of, signs_of
from hamtarget.search.device.rows import Snapshot

# Queries that are scanned for at once: more would need more memory, and are no faster.
_QUERIES_AT_A_TIME = 4096
# Keys that a scan may write: 32 MB.
_CAPACITY = 1 << 22
# Distances that are computed to begin a search for the nearest rows with.
_FIRST_CELLS = 1 << 24
_FIRST_ROWS = 4096
_MOST_FIRST_ROWS = 1 << 16
# In a batch, a span is at most so many times as long as all before it: more would find many rows that others replace.
_GROWTH = 16
_FEW_QUERIES = 32
_LARGEST_KEY = torch.iinfo(torch.int64).max


class Scan(Protocol):
    """Finds rows within a radius; see `PortableScan.scan`."""

    def scan(
        self, words: Tensor, queries: Tensor, radii: Tensor, allowed: Tensor | None, span: range, capacity: int
    ) -> tuple[int, Tensor]:
        """Return how many hits there are in a span of rows, and their keys; none if they are more than `capacity`."""
        ...


class WorkLimits(Protocol):
    """Bounds on the work; see `hamtarget.Limits`."""

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
        return TritonScan(device)
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

    def within(self, queries: Tensor, radius: int, limit: int | None) -> Answer:
        """Return the rows within a radius of each query, or the first `limit` of them."""
        parts = []
        for start in range(0, max(1, len(queries)), _QUERIES_AT_A_TIME):
            block = queries[start : start + _QUERIES_AT_A_TIME]
            self._take(rows=len(block) * self._n_rows)
            if len(block) == 0 or self._n_rows == 0:
                keys = torch.empty(0, dtype=torch.int64)
            elif limit is not None and limit < self._n_rows:
                keys = self._nearest(block, radius, limit)
            else:
                radii = torch.full((len(block),), radius, dtype=torch.int32, device=self._words.device)
                keys = self._collect(block, radii, range(self._n_rows))
            self._take(hits=len(keys))
            parts.append(answer_of(keys.cpu().numpy(), len(block)))
        return join_answers(parts)

    def _take(self, *, rows: int = 0, hits: int = 0) -> None:
        if self._limits is not None:
            self._limits.check()
            self._limits.take(rows=rows, hits=hits)

    def _collect(self, queries: Tensor, radii: Tensor, span: range) -> Tensor:
        """Return the keys of all hits in a span, ascending."""
        count, keys = self._scan.scan(self._words, queries, radii, self._allowed, span, _CAPACITY)
        if count <= _CAPACITY:
            return torch.sort(keys).values
        if self._limits is not None:
            self._limits.check()
        # A quarter more parts than needed, since parts differ. They leave the device, as an answer does.
        n_parts = -(-count * 5 // (4 * _CAPACITY))
        if len(queries) > 1:
            size = -(-len(queries) // n_parts)
            starts = range(0, len(queries), size)
            parts = [self._collect(queries[s : s + size], radii[s : s + size], span).cpu() for s in starts]
            return torch.cat([part + (s << QUERY_SHIFT) for s, part in zip(starts, parts, strict=True)])
        size = -(-len(span) // n_parts)
        spans = [span[s : s + size] for s in range(0, len(span), size)]
        return torch.sort(torch.cat([self._collect(queries, radii, part).cpu() for part in spans])).values

    def _nearest(self, queries: Tensor, radius: int, k: int) -> Tensor:
        """Return the keys of the k nearest rows of each query within a radius, ascending."""
        n_first = min(_FIRST_CELLS // len(queries), _MOST_FIRST_ROWS)
        n_first = min(self._n_rows, max(n_first, _FIRST_ROWS, 4 * k))
        best = self._first_nearest(queries, radius, k, n_first)
        done = n_first
        growth = max(1, _CAPACITY // (4 * k * len(queries)))
        if len(queries) > _FEW_QUERIES:
            growth = min(growth, _GROWTH)
        while done < self._n_rows:
            stop = min(self._n_rows, done + done * growth)
            # A later row loses against an earlier one at the same distance: its id is larger.
            radii = _kth_distances(best, len(queries), k, otherwise=radius + 1) - 1
            found = self._collect(queries, radii, range(done, stop))
            best = _first_of_each(torch.cat((best, found.to(best.device))), len(queries), k)
            done = stop
        return best

    def _first_nearest(self, queries: Tensor, radius: int, k: int, n_rows: int) -> Tensor:
        """Return the same of the first rows, of which there are few: by the distances of all."""
        signs = signs_of(queries)
        step = max(1, _FIRST_CELLS // n_rows)
        parts = []
        for start in range(0, len(queries), step):
            distance = distances(self._words[:n_rows], signs[start : start + step])
            keys = keys_of(distance, 0) + (start << QUERY_SHIFT)
            is_hit = distance <= radius
            if self._allowed is not None:
                is_hit &= self._allowed[:n_rows]
            keys = torch.where(is_hit, keys, _LARGEST_KEY)
            parts.append(keys.topk(min(k, n_rows), dim=1, largest=False, sorted=True).values.reshape(-1))
        keys = torch.cat(parts)
        return keys[keys != _LARGEST_KEY]


def _counts(keys: Tensor, n_queries: int) -> Tensor:
    return torch.bincount(keys >> QUERY_SHIFT, minlength=n_queries)


def _kth_distances(keys: Tensor, n_queries: int, k: int, *, otherwise: int) -> Tensor:
    """Return the distance of the k-th hit of each query, given its ascending keys; `otherwise` if it has fewer."""
    counts = _counts(keys, n_queries)
    last = (torch.cumsum(counts, 0) - counts + (k - 1)).clamp(max=max(0, len(keys) - 1))
    result = torch.full((n_queries,), otherwise, dtype=torch.int32, device=keys.device)
    if len(keys):
        distance = ((keys[last] >> ROW_BITS) & ((1 << DISTANCE_BITS) - 1)).to(torch.int32)
        result = torch.where(counts >= k, distance, result)
    return result


def _first_of_each(keys: Tensor, n_queries: int, k: int) -> Tensor:
    """Return the smallest k keys of each query, ascending."""
    ordered = torch.sort(keys).values
    counts = _counts(ordered, n_queries)
    starts = torch.cumsum(counts, 0) - counts
    ranks = torch.arange(len(ordered), device=keys.device) - starts[ordered >> QUERY_SHIFT]
    return ordered[ranks < k]


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
