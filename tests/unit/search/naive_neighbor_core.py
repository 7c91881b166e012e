"""A naive twin of the native NeighborCore: one list of rows, loops over queries, numpy."""

import numpy as np


class NaiveNeighborCore:
    """The same calls as `_native.NeighborCore`, without any of its layout."""

    def __init__(self, n_dims, metric, row_type, centres, codebooks):
        self.n_dims, self.metric, self.row_type = n_dims, metric, row_type
        self.centres, self.codebooks = centres, codebooks
        self.ids = np.empty(0, dtype=np.int64)
        self.rows = np.empty((0, n_dims), dtype=np.float32)
        self.cells = np.empty(0, dtype=np.int64)
        self.sketched = np.empty((0, n_dims), dtype=np.float32)

    def __len__(self):
        return len(self.ids)

    def add(self, ids, vectors, *, threads=1):
        vectors = np.asarray(vectors, dtype=np.float32)
        away = 0.5 * (self.centres**2).sum(axis=1) - vectors @ self.centres.T
        cells = away.argmin(axis=1)
        residual = vectors - self.centres[cells]
        sketched = np.zeros((len(vectors), self.codebooks.shape[0] * self.codebooks.shape[2]), dtype=np.float32)
        sketched[:, : self.n_dims] = residual
        for part, book in enumerate(self.codebooks):
            columns = slice(part * book.shape[1], (part + 1) * book.shape[1])
            scores = 0.5 * (book**2).sum(axis=1) - sketched[:, columns] @ book.T
            sketched[:, columns] = book[scores.argmin(axis=1)]
        self.ids = np.concatenate([self.ids, ids])
        self.rows = np.concatenate([self.rows, self._kept(vectors)])
        self.cells = np.concatenate([self.cells, cells])
        self.sketched = np.concatenate([self.sketched, self.centres[cells] + sketched[:, : self.n_dims]])

    def _kept(self, vectors):
        if self.row_type == "int8":
            scale = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-30) / 127
            return (np.rint(vectors / scale) * scale).astype(np.float32)
        return vectors.astype(self.row_type).astype(np.float32)

    def remove(self, ids):
        kept = ~np.isin(self.ids, ids)
        for name in ("ids", "rows", "cells", "sketched"):
            setattr(self, name, getattr(self, name)[kept])
        return int((~kept).sum())

    def search(self, queries, k, budget, comparisons, threads=1):
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        distances = np.full((len(queries), k), np.inf, dtype=np.float32)
        counts = np.zeros((len(queries), 2), dtype=np.int64)
        order = np.argsort(self.cells, kind="stable")
        bounds = np.searchsorted(self.cells[order], np.arange(len(self.centres) + 1))
        for place, query in enumerate(queries):
            ranked = np.argsort(self._scores(query, self.centres), kind="stable")
            sizes = np.diff(bounds)[ranked]
            n_visited = int(np.searchsorted(np.cumsum(sizes), budget, side="right"))
            visited = ranked[: max(1, n_visited)]
            read = np.concatenate([order[bounds[cell] : bounds[cell + 1]] for cell in visited])
            best = read[np.argsort(self._scores(query, self.sketched[read]), kind="stable")[:comparisons]]
            counts[place] = len(read), len(best)
            exact = self._scores(query, self.rows[best])
            chosen = np.argsort(exact, kind="stable")[:k]
            ids[place, : len(chosen)] = self.ids[best[chosen]]
            if self.metric == "l2":
                away = np.sqrt(((self.rows[best[chosen]] - query) ** 2).sum(axis=1))
            else:
                away = exact[chosen]
            distances[place, : len(chosen)] = away
        return ids, distances, counts

    def _scores(self, query, rows):
        return (0.5 * (rows**2).sum(axis=1) if self.metric == "l2" else 0) - rows @ query

    def compact(self):
        pass
