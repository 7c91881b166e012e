"""Libraries that search codes within a radius, beside those of search_methods.py: pynear, BK-trees, threatexchange.

Each is used through its Python API. What has no radius search of its own is asked for so many nearest, and hits beyond
the radius are dropped; such a method is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from research.benchmarks.search_methods import Found, Method, library

_NEAREST = 128


def found_of(hits: Iterable[Iterable[tuple[int, int]]]) -> Found:
    """Return (row, distance) pairs of each query as arrays."""
    lists = [list(each) for each in hits]
    pairs = [pair for each in lists for pair in each]
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return np.concatenate(([0], np.cumsum([len(each) for each in lists]))), array[:, 0], array[:, 1]


class PynearMIH(Method):
    """Multi-index hashing of pynear: the nearest 128 of its candidates within a radius of lookups."""

    name = "pynear MIHBinaryIndex"
    exact = False

    def __init__(self, n_bits: int, *, substrings: int) -> None:
        super().__init__(n_bits)
        self.substrings = substrings
        self.setting = f"m {substrings}"

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = library("pynear").MIHBinaryIndex(self.substrings)
        self.index.set(codes)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return the hits among the nearest 128."""
        rows, distances = self.index.searchKNN(queries, _NEAREST, radius)
        return found_of(
            [(r, d) for r, d in zip(some, far, strict=True) if d <= radius and r >= 0]
            for some, far in zip(rows, distances, strict=True)
        )


class PynearTree(Method):
    """The BK-tree of pynear."""

    name = "pynear BKTreeBinaryIndex"
    most_queries = 200

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = library("pynear").BKTreeBinaryIndex()
        self.index.set(codes)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius`."""
        rows, distances = self.index.find_threshold(queries, radius + 1)[:2]
        return found_of(
            [(r, d) for r, d in zip(some, far, strict=True) if d <= radius]
            for some, far in zip(rows, distances, strict=True)
        )


class PythonTree(Method):
    """`pybktree`, a BK-tree in Python, as imagededup has one."""

    name = "pybktree"
    most_queries = 20

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the tree by one of these rows. Equal codes are one node."""
        self._rows: dict[int, list[int]] = {}
        for row, code in enumerate(codes):
            self._rows.setdefault(int.from_bytes(code.tobytes(), "little"), []).append(row)
        distance: Callable[[int, int], int] = lambda a, b: (a ^ b).bit_count()  # noqa: E731
        self.index = library("pybktree").BKTree(distance, self._rows)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius`."""
        return found_of(
            [
                (row, distance)
                for distance, number in self.index.find(int.from_bytes(query.tobytes(), "little"), radius)
                for row in self._rows[number]
            ]
            for query in queries
        )


class ThreatExchange(Method):
    """An index of PDQ hashes behind threatexchange's interface: queries are strings, one at a time."""

    most_queries = 2_000

    def __init__(self, n_bits: int, module: str, kind: str) -> None:
        super().__init__(n_bits)
        self._module, self._kind = module, kind
        self.name = f"threatexchange {kind}"

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        kind: Any = getattr(library(self._module), self._kind)
        self.index = kind.build([(code.tobytes().hex(), row) for row, code in enumerate(codes)])

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within 31, the threshold of these indexes."""
        return found_of(
            [
                (match.metadata, int(match.similarity_info.distance))
                for match in self.index.query(query.tobytes().hex())
                if match.similarity_info.distance <= radius
            ]
            for query in queries
        )


def threatexchange_methods(n_bits: int) -> list[Method]:
    """Return the default index of threatexchange, its newer one, and ours behind the same interface."""
    return [
        ThreatExchange(n_bits, "threatexchange.signal_type.pdq.pdq_index", "PDQIndex"),
        ThreatExchange(n_bits, "threatexchange.signal_type.pdq.pdq_index2", "PDQIndex2"),
        ThreatExchange(n_bits, "hamtarget.integrations.threatexchange.pdq_index", "PDQMultiIndex"),
    ]
