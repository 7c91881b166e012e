"""Vector indexes of faiss, which the paper's figure 4 compares with codes and the multi-index.

All have the interface `VectorPeer`. They train on the vectors to learn from only, are built with every core, and are
searched with one. Settings have the names that faiss gives them.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.errors import CorruptFileError, FileError, InputError, MissingExtraError, NotFittedError

Setting = Mapping[str, int]
"""Values of the parameters of a search by their names in faiss: nprobe, k_factor, efSearch."""

Stored = Literal["float32", "uint8"]

# Rows converted to float32 at a time: the copy stays near 50 MB.
_ROWS_AT_A_TIME = 100_000
_CHECKSUM_BYTES = 32


@dataclass(frozen=True)
class Comparisons:
    """The mean number of rows and centres that a query is compared with."""

    rows: float
    """Rows of the base whose distance to the query is computed, exactly or from their codes."""
    centroids: float
    """Centres of cells whose distance to the query is computed, to choose the cells."""
    refined: float = 0.0
    """Those of `rows` whose distance is computed a second time, from the stored vector."""


class VectorPeer(ABC):
    """An index of faiss over vectors.

    Attributes:
        name: name of the index and its sizes.
        settings: settings of the searches that are worth measuring.
        stored: element type of the vectors that it keeps, if it keeps any.
    """

    name: str
    settings: tuple[Setting, ...]
    stored: Stored = "float32"
    _index: Any = None

    def build(self, base: NDArray[Any], learn: NDArray[Any], *, seed: int = 0) -> Self:
        """Learn from `learn`, store the rows of `base`, and return the peer. Ids are row numbers.

        Raises:
            InputError: it stores bytes, and `base` holds something else.
            MissingExtraError: faiss is not installed.
        """
        if self.stored == "uint8":
            _check_bytes(base, self.name)
        index = self._empty(base.shape[1], seed)
        with _threads(_cores()):
            index.train(_float32(learn))
            for start in range(0, len(base), _ROWS_AT_A_TIME):
                index.add(_float32(base[start : start + _ROWS_AT_A_TIME]))
        self._index = index
        return self

    def search(self, queries: NDArray[Any], k: int, *, setting: Setting) -> NDArray[np.int64]:
        """Return the row numbers of the k nearest that it finds, (queries, k), nearest first; -1 if it finds fewer.

        Raises:
            NotFittedError: it has not been built.
            InputError: `setting` names a parameter that this peer does not have.
        """
        self._apply(setting)
        vectors = _float32(queries)
        with _threads(1):
            ids: NDArray[np.int64] = self._built().search(vectors, k)[1]
        return ids

    @abstractmethod
    def comparisons(self, queries: NDArray[Any], k: int, *, setting: Setting) -> Comparisons:
        """Count what these queries are compared with, on average, in a search for the k nearest."""

    def bytes_per_row(self) -> float:
        """Return the size of everything stored, vectors included, as faiss writes it, divided by the rows."""
        index = self._built()
        return float(len(_faiss().serialize_index(index)) / index.ntotal)

    def save(self, path: Path) -> None:
        """Write the built index to `path`: a checksum, then faiss's own format."""
        content = _faiss().serialize_index(self._built()).tobytes()
        write_atomically(path, hashlib.sha256(content).digest() + content)

    def load(self, path: Path) -> Self:
        """Load the index that `save` wrote to `path`, and return the peer.

        Raises:
            FileError: there is no such file.
            CorruptFileError: the file is damaged.
        """
        try:
            file = path.read_bytes()
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
        content = memoryview(file)[_CHECKSUM_BYTES:]
        # faiss trusts what it reads: a damaged file could end the process.
        if hashlib.sha256(content).digest() != file[:_CHECKSUM_BYTES]:
            raise CorruptFileError(f"{path} is damaged: its checksum is wrong; remove it, to build the index again")
        self._index = _faiss().deserialize_index(np.frombuffer(content, dtype=np.uint8))
        return self

    def unload(self) -> None:
        """Free the index. The peer can be built or loaded again."""
        self._index = None

    @abstractmethod
    def _empty(self, columns: int, seed: int) -> Any:
        """Return an index of faiss that has neither learned nor stored anything."""

    @abstractmethod
    def _apply(self, setting: Setting) -> None:
        """Set the parameters of the next search."""

    def _built(self) -> Any:
        if self._index is None:
            raise NotFittedError(f"{self.name} holds nothing yet: call build or load first")
        return self._index

    def _values(self, setting: Setting, *names: str) -> list[int]:
        if set(setting) != set(names):
            raise InputError(f"setting is {dict(setting)}; {self.name} takes {', '.join(names)}")
        return [setting[name] for name in names]


class _InvertedFile(VectorPeer):
    """k-means cells, of which the nearest `nprobe` are scanned."""

    cells: int

    def comparisons(self, queries: NDArray[Any], k: int, *, setting: Setting) -> Comparisons:
        """Count all centres, and the rows of the cells that are visited."""
        self._apply(setting)
        ivf = self._cells()
        with _threads(1):
            visited = ivf.quantizer.search(_float32(queries), ivf.nprobe)[1]
        sizes = np.array([ivf.invlists.list_size(cell) for cell in range(ivf.nlist)])
        # -1 stands for no cell.
        rows = np.where(visited >= 0, sizes[visited], 0).sum(axis=1)
        return Comparisons(rows=float(rows.mean()), centroids=float(ivf.nlist))

    def _cells(self) -> Any:
        """Return the inverted file itself, without what wraps it."""
        return _faiss().extract_index_ivf(self._built())

    def _apply(self, setting: Setting) -> None:
        (self._cells().nprobe,) = self._values(setting, "nprobe")

    def _empty_cells(self, columns: int, description: str, seed: int) -> Any:
        faiss = _faiss()
        index = faiss.index_factory(columns, f"IVF{self.cells},{description}")
        ivf = faiss.extract_index_ivf(index)
        ivf.cp.seed = seed
        # With fewer rows a cell than it would like, faiss writes to the standard error; the choice is the caller's.
        ivf.cp.min_points_per_centroid = 1
        return index


class IVFADC(_InvertedFile):
    """Cells that hold residuals as product quantizer codes of `pieces` bytes, without vectors (Jegou et al.)."""

    def __init__(self, *, cells: int = 1024, pieces: int = 8) -> None:
        self.cells, self.pieces = cells, pieces
        self.name = f"IVFADC {8 * pieces} bits, {cells} cells"
        self.settings = tuple({"nprobe": cells_visited} for cells_visited in (1, 8, 64))

    def _empty(self, columns: int, seed: int) -> Any:
        index = self._empty_cells(columns, f"PQ{self.pieces}x8", seed)
        index.pq.cp.seed = seed
        index.pq.cp.min_points_per_centroid = 1
        # Numbering codes by their likeness takes longer than all the rest, and is of no use to this search.
        index.do_polysemous_training = False
        return index


class IVFVectors(_InvertedFile):
    """Cells that hold whole vectors, as float32 (IVF-Flat) or, if they are bytes, as bytes."""

    def __init__(self, *, cells: int, stored: Stored = "float32") -> None:
        self.cells, self.stored = cells, stored
        self.name = f"IVF {cells} cells, {stored}"
        # Up to a sixth of the cells: beyond, a smaller number of cells is better.
        self.settings = tuple({"nprobe": 2**power} for power in range(10) if 2**power <= max(1, cells // 6))

    def _empty(self, columns: int, seed: int) -> Any:
        if self.stored == "float32":
            return self._empty_cells(columns, "Flat", seed)
        index = self._empty_cells(columns, "SQ8_direct", seed)
        # Bytes are stored as they are; what is left after subtracting a centre would be no byte.
        index.by_residual = False
        return index


class IVFRefined(_InvertedFile):
    """Cells with 4-bit product quantizer codes, scanned in registers; the best `k_factor` * k by stored vectors."""

    def __init__(self, *, cells: int = 4096, pieces: int = 32, stored: Stored = "float32") -> None:
        self.cells, self.pieces, self.stored = cells, pieces, stored
        self.name = f"IVF {cells} cells, PQ{pieces}x4fs, refined by {stored}"
        self.settings = tuple(
            {"nprobe": probes, "k_factor": factor}
            for probes in (8, 16, 24, 32, 48, 64, 96, 128)
            for factor in (1, 2, 4)
        )

    def comparisons(self, queries: NDArray[Any], k: int, *, setting: Setting) -> Comparisons:
        """Count all centres, the rows of the cells that are visited, and those that are compared again."""
        found = super().comparisons(queries, k, setting=setting)
        return Comparisons(found.rows, found.centroids, min(found.rows, float(k * setting["k_factor"])))

    def _apply(self, setting: Setting) -> None:
        self._cells().nprobe, self._built().k_factor = self._values(setting, "nprobe", "k_factor")

    def _empty(self, columns: int, seed: int) -> Any:
        refine = "RFlat" if self.stored == "float32" else "Refine(SQ8_direct)"
        index = self._empty_cells(columns, f"PQ{self.pieces}x4fs,{refine}", seed)
        quantizer = _faiss().downcast_index(_faiss().extract_index_ivf(index)).pq
        quantizer.cp.seed = seed
        quantizer.cp.min_points_per_centroid = 1
        return index


class HNSW(VectorPeer):
    """A navigable graph of `links` links for each row over float32 vectors. Learns nothing; `seed` has no effect."""

    def __init__(self, *, links: int = 32) -> None:
        self.links = links
        self.name = f"HNSW{links}, float32"
        self.settings = tuple({"efSearch": breadth} for breadth in (16, 32, 64, 128, 256, 512))

    def comparisons(self, queries: NDArray[Any], k: int, *, setting: Setting) -> Comparisons:
        """Count the rows as faiss does while it searches."""
        counts = _faiss().cvar.hnsw_stats
        counts.reset()
        self.search(queries, k, setting=setting)
        return Comparisons(rows=counts.ndis / len(queries), centroids=0.0)

    def _apply(self, setting: Setting) -> None:
        (self._built().hnsw.efSearch,) = self._values(setting, "efSearch")

    def _empty(self, columns: int, seed: int) -> Any:
        return _faiss().index_factory(columns, f"HNSW{self.links}")


def figure4_peers(*, whole_bytes: bool) -> list[VectorPeer]:
    """Return every peer of the paper's figure 4 at the sizes for a million rows, not built yet.

    Args:
        whole_bytes: whether the vectors are bytes: then cells store them in a byte a number, without loss, which takes
            a quarter of the memory and is faster.
    """
    stored: Stored = "uint8" if whole_bytes else "float32"
    cells = [IVFVectors(cells=cells, stored=stored) for cells in (1024, 4096, 16384)]
    return [IVFADC(), *cells, IVFRefined(stored=stored), HNSW()]


def faiss_version() -> str:
    """Return the version of faiss and the CPU instructions that it uses."""
    faiss = _faiss()
    return f"{faiss.__version__} {faiss.get_compile_options().strip()}"


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss is not installed; for its indexes: pip install 'hamtarget[research]'") from error
    return faiss


def _float32(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _check_bytes(base: NDArray[Any], name: str) -> None:
    """Check that `base` loses nothing when it is stored as bytes.

    Raises:
        InputError: `base` holds other numbers.
    """
    if base.dtype == np.uint8:
        return
    for start in range(0, len(base), _ROWS_AT_A_TIME):
        block = base[start : start + _ROWS_AT_A_TIME]
        wrong = np.flatnonzero(((block < 0) | (block > 255) | (block != np.rint(block))).any(axis=1))
        if len(wrong):
            raise InputError(
                f"base: row {start + int(wrong[0]):,} is not of whole numbers from 0 to 255; {name} stores bytes: "
                "take the peer that stores float32"
            )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let faiss use a number of threads inside the `with` block."""
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
