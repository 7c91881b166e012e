"""Libraries that search codes within a radius, beside those of search_methods.py, and their searches for all pairs.

Each is used through its Python API. What has no radius search of its own is asked for so many nearest, and hits beyond
the radius are dropped; such a method is not exact. A library is imported at first use, so that those that are not
installed can be left out.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from research.benchmarks.search_methods import Found, Method, library

NEAREST = 128


def found_of(hits: Iterable[Iterable[tuple[int, int]]]) -> Found:
    """Return (row, distance) pairs of each query as arrays."""
    lists = [list(each) for each in hits]
    pairs = [pair for each in lists for pair in each]
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return np.concatenate(([0], np.cumsum([len(each) for each in lists]))), array[:, 0], array[:, 1]


def _within(rows: NDArray[Any], distances: NDArray[Any], radius: int) -> Found:
    """Return the hits among the nearest of each query, (queries, k); a row below 0 stands for none."""
    near = (distances <= radius) & (rows >= 0)
    return np.concatenate(([0], np.cumsum(near.sum(axis=1)))), rows[near], distances[near]


class CodePeer(Method):
    """A library whose queries or answers are not arrays.

    `answer` is the library's part, which is timed. `asked` and `found` translate before and after it, and are not.
    """

    def asked(self, queries: Codes) -> Any:
        """Return the queries in the form in which a user of the library has them."""
        return queries

    @abstractmethod
    def answer(self, asked: Any, radius: int) -> Any:
        """Return what the library answers to a batch."""

    def answer_one(self, asked: Any, radius: int) -> Any:
        """Return what the library answers to a batch of one, by its call for one query if it has one."""
        return self.answer(asked, radius)

    @abstractmethod
    def found(self, answer: Any, radius: int) -> Found:
        """Return the hits of an answer as arrays."""

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius` that the library finds."""
        return self.found(self.answer(self.asked(queries), radius), radius)


class Hammingbird(CodePeer):
    """The index of hammingbird: tables of radius + 1 substrings."""

    name = "hammingbird Index"

    def __init__(self, n_bits: int, radius: int) -> None:
        super().__init__(n_bits)
        self.radius = radius

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = library("hammingbird").Index(self.n_bits // 8, self.radius)
        self.index.add_batch(codes)

    def answer(self, asked: Codes, radius: int) -> list[list[tuple[int, int]]]:
        """Return rows and distances of each query. Its radius is that of the index."""
        found: list[list[tuple[int, int]]] = self.index.query_batch(asked)
        return found

    def answer_one(self, asked: Codes, radius: int) -> list[tuple[int, int]]:
        """Return rows and distances of one query."""
        found: list[tuple[int, int]] = self.index.query(asked[0])
        return found

    def found(self, answer: list[list[tuple[int, int]]], radius: int) -> Found:
        """Return the hits of an answer as arrays."""
        return found_of(answer)


class PynearMIH(CodePeer):
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

    def answer(self, asked: Codes, radius: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows and distances of the nearest 128, as arrays; its lists take longer."""
        found: tuple[NDArray[np.int64], NDArray[np.int64]] = self.index.searchKNN_arrays(asked, NEAREST, radius)
        return found

    def found(self, answer: tuple[NDArray[np.int64], NDArray[np.int64]], radius: int) -> Found:
        """Return the hits among the nearest 128."""
        return _within(*answer, radius)


class PynearTree(CodePeer):
    """The BK-tree of pynear."""

    name = "pynear BKTreeBinaryIndex"
    most_queries = 200

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = library("pynear").BKTreeBinaryIndex()
        self.index.set(codes)

    def answer(self, asked: Codes, radius: int) -> Any:
        """Return lists of rows, distances and codes. What is at the threshold itself may be in them, or not."""
        return self.index.find_threshold(asked, radius + 1)

    def found(self, answer: Any, radius: int) -> Found:
        """Return the hits of an answer as arrays."""
        return found_of(
            [(r, d) for r, d in zip(some, far, strict=True) if d <= radius]
            for some, far in zip(answer[0], answer[1], strict=True)
        )


class NearestWithin(CodePeer):
    """A graph, which has no radius search: the nearest 128 that it finds, without those beyond the radius."""

    exact = False

    def __init__(self, graph: Method) -> None:
        super().__init__(graph.n_bits)
        self._graph = graph
        self.name, self.setting = graph.name, graph.setting

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the graph by one of these rows."""
        self._graph.build(codes, ids)
        self.index = self._graph.index

    def answer(self, asked: Codes, radius: int) -> Found:
        """Return the nearest 128 that it finds."""
        return self._graph.nearest(asked, NEAREST)

    def found(self, answer: Found, radius: int) -> Found:
        """Return the hits among the nearest 128."""
        _, rows, distances = answer
        return _within(
            rows.reshape(-1, NEAREST).astype(np.int64), distances.reshape(-1, NEAREST).astype(np.int64), radius
        )


def _number(text: str) -> int:
    return int(text, 16)


def _bits_between(a: int, b: int) -> int:
    return (a ^ b).bit_count()


class PythonTree(CodePeer):
    """`pybktree`, a BK-tree in Python."""

    name = "pybktree"
    most_queries = 20

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the tree by one of these rows. Equal codes are one node."""
        self._rows: dict[int, list[int]] = {}
        for row, number in enumerate(self.asked(codes)):
            self._rows.setdefault(number, []).append(row)
        self.index = library("pybktree").BKTree(_bits_between, self._rows)

    def asked(self, queries: Codes) -> list[int]:
        """Return the queries as numbers."""
        return [int.from_bytes(query.tobytes(), "little") for query in queries]

    def answer(self, asked: list[int], radius: int) -> list[list[tuple[int, int]]]:
        """Return distances and numbers of each query."""
        return [self.index.find(number, radius) for number in asked]

    def found(self, answer: list[list[tuple[int, int]]], radius: int) -> Found:
        """Return the hits of an answer as arrays."""
        return found_of([(row, distance) for distance, number in each for row in self._rows[number]] for each in answer)


class Imagededup(CodePeer):
    """A search of imagededup: names and hashes are strings, and so is a query.

    Its own distance counts differing characters of binary strings; the BK-tree gets a faster one.
    """

    most_queries = 5

    def __init__(self, n_bits: int, module: str, kind: str) -> None:
        super().__init__(n_bits)
        self._module, self._kind = module, kind
        self.name = f"imagededup {kind}"

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        kind: Any = getattr(library(f"imagededup.handlers.search.{self._module}"), self._kind)
        # The tree hangs equal hashes one below the other, and goes down by recursion.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 2 * len(codes)))
        self.index = kind(
            {str(row): text for row, text in enumerate(self.asked(codes))},
            lambda a, b: _bits_between(_number(a), _number(b)),
        )

    def asked(self, queries: Codes) -> list[str]:
        """Return the queries as strings."""
        return [query.tobytes().hex() for query in queries]

    def answer(self, asked: list[str], radius: int) -> list[list[tuple[Any, int]]]:
        """Return names and distances of each query."""
        return [self.index.search(query=text, tol=radius) for text in asked]

    def found(self, answer: list[list[tuple[Any, int]]], radius: int) -> Found:
        """Return the hits of an answer as arrays."""
        return found_of([(int(name), int(distance)) for name, distance in each] for each in answer)


class ThreatExchange(CodePeer):
    """An index of PDQ hashes behind threatexchange's interface: queries are strings, one at a time."""

    most_queries = 2_000

    def __init__(self, n_bits: int, module: str, kind: str) -> None:
        super().__init__(n_bits)
        self._module, self._kind = module, kind
        self.name = f"threatexchange {kind}"

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        kind: Any = getattr(library(self._module), self._kind)
        self.index = kind.build([(text, row) for row, text in enumerate(self.asked(codes))])

    def asked(self, queries: Codes) -> list[str]:
        """Return the queries as strings."""
        return [query.tobytes().hex() for query in queries]

    def answer(self, asked: list[str], radius: int) -> list[Sequence[Any]]:
        """Return the matches of each query within 31, the threshold of these indexes."""
        return [self.index.query(text) for text in asked]

    def found(self, answer: list[Sequence[Any]], radius: int) -> Found:
        """Return the hits of an answer as arrays."""
        return found_of(
            [
                (match.metadata, int(match.similarity_info.distance))
                for match in matches
                if match.similarity_info.distance <= radius
            ]
            for matches in answer
        )


def threatexchange_methods(n_bits: int) -> list[Method]:
    """Return the default index of threatexchange, its newer one, and ours behind the same interface."""
    return [
        ThreatExchange(n_bits, "threatexchange.signal_type.pdq.pdq_index", "PDQIndex"),
        ThreatExchange(n_bits, "threatexchange.signal_type.pdq.pdq_index2", "PDQIndex2"),
        ThreatExchange(n_bits, "hamtarget.integrations.threatexchange", "PDQMultiIndex"),
    ]


def imagededup_methods(n_bits: int) -> list[Method]:
    """Return the BK-tree of imagededup, and its scan in C, which is its default and takes 64 bits."""
    return [Imagededup(n_bits, "bktree", "BKTree"), Imagededup(n_bits, "brute_force_cython", "BruteForceCython")]


HAMMINGBIRD_JOINS = ("find_pairs_self", "find_pairs_self_bit", "find_pairs_self_adaptive")
"""The functions of hammingbird that find all pairs of a set."""


def hammingbird_pairs(function: str) -> Callable[[Codes, int], list[tuple[int, int, int]]]:
    """Return one of hammingbird's functions for all pairs of a set within a radius: (row, later row, distance)."""
    found: Callable[[Codes, int], list[tuple[int, int, int]]] = getattr(library("hammingbird"), function)
    return found
