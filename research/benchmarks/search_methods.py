"""Put hamtarget and other libraries behind one small interface, each with one thread and through its Python API."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._native import kernels
from hamtarget.codes import Codes
from hamtarget.query import Work
from hamtarget.search import Answer, FlatIndex, MultiIndex

Found = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Offsets, ids and distances of a batch; the hits of query q lie from offsets[q] to offsets[q + 1]."""

IVF_CELLS = 1024
IVF_TRAINING_ROWS = 100_000
# Candidates kept while a row is linked into a graph: the default of faiss. The default of usearch is three times as
# many, and takes minutes.
GRAPH_BUILD_BREADTH = 40


def random_ids(n_rows: int) -> NDArray[np.int64]:
    """Return different ids of 63 bits in no order."""
    # An odd factor permutes the numbers below 2^63.
    return np.arange(n_rows, dtype=np.int64) * 0x5851F42D4C957F2D & 0x7FFFFFFFFFFFFFFF


def library(name: str) -> Any:
    """Return the module if it is installed. faiss is limited to one thread.

    Raises:
        ImportError: it is not installed; `make bench-search` installs it.
    """
    module = importlib.import_module(name)
    if name == "faiss":
        module.omp_set_num_threads(1)
    return module


def versions() -> dict[str, str]:
    """Return the version of each library that is compared, and the CPU instructions that ours and faiss use."""
    found = {name: metadata.version(name) for name in ("faiss-cpu", "usearch", "matplotlib")}
    return found | {"hamtarget kernel": kernels()[0], "faiss options": library("faiss").get_compile_options().strip()}


class Method(ABC):
    """An index of one library at one setting.

    Attributes:
        name: name of the library and its index.
        setting: the setting, which tells it from others of the same index.
        exact: True if it finds every hit and no other.
        index: the library's own index, once built.
        most_queries: longest batch; more queries would take minutes.
    """

    name: str
    setting: str = ""
    exact = True
    most_queries = 10_000
    index: Any = None

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits

    def __str__(self) -> str:
        """Return the name and the setting."""
        return f"{self.name} {self.setting}".rstrip()

    @abstractmethod
    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the content of the index by these codes. Most peers have no ids but row numbers."""

    def rows(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row numbers of the ids that a search returned."""
        return ids.astype(np.int64, copy=False)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius`."""
        raise NotImplementedError(f"{self} has no radius search")

    def nearest(self, queries: Codes, k: int) -> Found:
        """Return the `k` nearest of each query."""
        raise NotImplementedError(f"{self} has no nearest")


class OurMultiIndex(Method):
    """`hamtarget.search.MultiIndex` with its defaults; the only setting is its radius."""

    name = "hamtarget MultiIndex"

    def __init__(self, n_bits: int, radius: int) -> None:
        super().__init__(n_bits)
        self.radius = radius

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = MultiIndex(self.n_bits, self.radius)
        self.index.add(ids, codes)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius`, by distance and id."""
        return _parts(self.index.search_batch(queries, radius, work=Work(threads=1)))

    def nearest(self, queries: Codes, k: int) -> Found:
        """Return the `k` nearest, by distance and id."""
        return _parts(self.index.nearest_batch(queries, k, work=Work(threads=1)))


class OurMultiIndexWithIds(OurMultiIndex):
    """The same index with ids that are any 63-bit numbers, in no order. Other libraries have row numbers only."""

    setting = "random ids"

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows under random ids."""
        self.ids = random_ids(len(codes))
        super().build(codes, self.ids)

    def rows(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row numbers of the ids that a search returned."""
        order = np.argsort(self.ids)
        return order[np.searchsorted(self.ids, ids, sorter=order)]


class OurFlatIndex(Method):
    """`hamtarget.search.FlatIndex`."""

    name = "hamtarget FlatIndex"
    most_queries = 1_000

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = FlatIndex(self.n_bits)
        self.index.add(ids, codes)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius`, by distance and id."""
        return _parts(self.index.search_batch(queries, radius, work=Work(threads=1)))

    def nearest(self, queries: Codes, k: int) -> Found:
        """Return the `k` nearest, by distance and id."""
        return _parts(self.index.nearest_batch(queries, k, work=Work(threads=1)))


class Faiss(Method):
    """The common part of faiss's binary indexes."""

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self.faiss = library("faiss")

    @abstractmethod
    def empty(self) -> Any:
        """Return an index without rows."""

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows. Its ids are row numbers."""
        self.index = self.empty()
        self.index.add(codes)

    def search(self, queries: Codes, radius: int) -> Found:
        """Return every hit within `radius`, in no order. The radius of faiss is strict: it keeps distances below it."""
        offsets, distances, ids = self.index.range_search(queries, radius + 1)
        return offsets, ids, distances

    def nearest(self, queries: Codes, k: int) -> Found:
        """Return the `k` nearest by distance, equal ones in no order."""
        distances, ids = self.index.search(queries, k)
        return np.arange(0, len(queries) * k + 1, k), ids.ravel(), distances.ravel()


class FaissFlat(Faiss):
    """A linear scan, which collects the nearest in a heap or by counting distances."""

    name = "faiss IndexBinaryFlat"
    most_queries = 1_000

    def __init__(self, n_bits: int, *, heap: bool = True) -> None:
        super().__init__(n_bits)
        self.heap = heap
        self.setting = "" if heap else "without heap"

    def empty(self) -> Any:
        """Return an index without rows."""
        index = self.faiss.IndexBinaryFlat(self.n_bits)
        index.use_heap = self.heap
        return index


class FaissMultiHash(Faiss):
    """`hashes` tables of `bits` bits each, of which up to `flips` are flipped.

    Exact for radius r when hashes * (flips + 1) > r. Bits beyond hashes * bits are in no table, but are compared.
    """

    name = "faiss IndexBinaryMultiHash"

    def __init__(self, n_bits: int, *, hashes: int, bits: int, flips: int = 0) -> None:
        super().__init__(n_bits)
        self.hashes, self.bits, self.flips = hashes, bits, flips
        self.setting = f"{hashes}x{bits}" + (f" nflip {flips}" if flips else "")

    def empty(self) -> Any:
        """Return an index without rows."""
        index = self.faiss.IndexBinaryMultiHash(self.n_bits, self.hashes, self.bits)
        index.nflip = self.flips
        return index


class FaissHash(Faiss):
    """One table of the first `bits` bits, of which up to `flips` are flipped: exact for a radius up to `flips`."""

    name = "faiss IndexBinaryHash"

    def __init__(self, n_bits: int, *, bits: int, flips: int) -> None:
        super().__init__(n_bits)
        self.bits, self.flips = bits, flips
        self.setting = f"b {bits} nflip {flips}"

    def empty(self) -> Any:
        """Return an index without rows."""
        index = self.faiss.IndexBinaryHash(self.n_bits, self.bits)
        index.nflip = self.flips
        return index


class FaissIVF(Faiss):
    """k-means cells, of which the nearest `probes` are scanned."""

    name = "faiss IndexBinaryIVF"
    exact = False

    def __init__(self, n_bits: int, *, probes: int) -> None:
        super().__init__(n_bits)
        self.probes = probes
        self.setting = f"{IVF_CELLS} cells, nprobe {probes}"

    def empty(self) -> Any:
        """Return an index that has no rows and is not trained."""
        # The inverted file does not keep its quantizer alive.
        self.quantizer = self.faiss.IndexBinaryFlat(self.n_bits)
        index = self.faiss.IndexBinaryIVF(self.quantizer, self.n_bits, IVF_CELLS)
        index.nprobe = self.probes
        return index

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Train on the first rows, then add all."""
        self.index = self.empty()
        self.index.train(codes[:IVF_TRAINING_ROWS])
        self.index.add(codes)


class FaissHNSW(Faiss):
    """A navigable graph, searched with one thread, but built with every core, since that takes a minute."""

    name = "faiss IndexBinaryHNSW"
    exact = False

    def __init__(self, n_bits: int, *, links: int, breadth: int) -> None:
        super().__init__(n_bits)
        self.links, self.breadth = links, breadth
        self.setting = f"M {links}, efSearch {breadth}"

    def empty(self) -> Any:
        """Return an index without rows."""
        index = self.faiss.IndexBinaryHNSW(self.n_bits, self.links)
        index.hnsw.efConstruction = GRAPH_BUILD_BREADTH
        index.hnsw.efSearch = self.breadth
        return index

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.faiss.omp_set_num_threads(os.cpu_count() or 1)
        try:
            super().build(codes, ids)
        finally:
            self.faiss.omp_set_num_threads(1)


class Usearch(Method):
    """A navigable graph over bits or, if `exact`, a scan of its rows; searched with one thread, built with all."""

    name = "usearch b1"

    def __init__(self, n_bits: int, *, links: int, breadth: int, exact: bool = False) -> None:
        super().__init__(n_bits)
        self.links, self.breadth, self.exact = links, breadth, exact
        self.setting = "exact" if exact else f"connectivity {links}, expansion {breadth}"
        if exact:
            self.most_queries = 100

    def build(self, codes: Codes, ids: NDArray[np.int64]) -> None:
        """Replace the index by one of these rows."""
        self.index = library("usearch.index").Index(
            ndim=self.n_bits,
            metric="hamming",
            dtype="b1",
            connectivity=self.links,
            expansion_add=GRAPH_BUILD_BREADTH,
            expansion_search=self.breadth,
        )
        self.index.add(ids, codes, threads=os.cpu_count() or 1)

    def nearest(self, queries: Codes, k: int) -> Found:
        """Return the `k` nearest that it finds, by distance."""
        found = self.index.search(queries, k, threads=1, exact=self.exact)
        return np.arange(0, len(queries) * k + 1, k), found.keys.ravel(), found.distances.ravel()


def exact_settings(n_bits: int, radius: int) -> list[Faiss]:
    """Return the settings of faiss's hash indexes that are exact at `radius`, to find the fastest of them."""
    settings: list[Faiss] = []
    for flips in (0, 1):
        hashes = radius // (flips + 1) + 1
        longest = min(64, n_bits // hashes)
        # At a million rows, tables of fewer than 14 bits were never the best; b up to 64 fits a word of faiss.
        lengths = {longest, *(bits for bits in (14, 16, 18, 20, 24, 28, 32) if bits < longest)}
        settings += [FaissMultiHash(n_bits, hashes=hashes, bits=bits, flips=flips) for bits in sorted(lengths)]
    # The number of buckets to look at grows as bits^flips: too many beyond a radius of 2 or 3.
    if radius <= 3:
        settings += [FaissHash(n_bits, bits=bits, flips=radius) for bits in (8, 10, 12, 14, 16, 18, 20, 22, 24)]
    return settings


def _parts(hits: Answer) -> Found:
    return hits.offsets, hits.ids, hits.distances
