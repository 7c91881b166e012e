"""The native core. Private: hamtarget.search checks arguments, this module does not."""

import enum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_HitsT = TypeVar("_HitsT", bound=tuple[object, ...])

def kernels() -> list[str]:
    """Return the names of the kernels that this CPU can run; the first is in use."""

def distances(query: NDArray[np.uint8], codes: NDArray[np.uint8], kernel: str | None = None) -> NDArray[np.uint16]:
    """Return the Hamming distances of one query, (bytes,), to all codes, (rows, bytes)."""

def pdq_reduction(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a picture, (height, width, 3), as the 64 * 64 numbers of which PDQ makes its hash."""

def within(
    query: NDArray[np.uint8], codes: NDArray[np.uint8], radius: int, kernel: str | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Return the rows within `radius` of one query, and their distances, in the order of the rows."""

class SearchCosts:
    """Costs of a search in nanoseconds, as they are or to be fitted."""

    cache_bytes: float
    bucket: float
    far_bucket: float
    entry: float
    entry_byte: float
    far_byte: float
    noticed_bytes: float
    fetched_code: float
    fetched_share: float

def planned_tables(n_bytes: int, radius: int, n_rows: int) -> int:
    """Return the number of tables that a piece of so many rows gets."""

_TableChoice = tuple[int, list[int], list[int], int, int, float, int, float, float]

def table_choice(
    n_bytes: int, radius: int, n_rows: int, n_tables: int, is_planned: bool = True, costs: SearchCosts = ...
) -> _TableChoice:
    """Return the numbers of a TableChoice.

    They are tables, lengths, flips, bytes of an excerpt, buckets, candidates, bytes of a row, bytes of the index,
    nanoseconds.
    """

def table_choices(n_bytes: int, radius: int, n_rows: int) -> list[_TableChoice]:
    """Return the same for each number of tables that a piece may get."""

def directory_bits(n_rows: int) -> int:
    """Return the bits of a bucket number for so many rows."""

def scan_cost(n_rows: int, n_bytes: int) -> float:
    """Return the nanoseconds that reading all rows takes."""

class Element(enum.Enum):
    float32 = 0
    float16 = 1
    int8 = 2

class Metric(enum.Enum):
    l2 = 0
    cosine = 1
    dot = 2

class Limits:
    """Bounds on the work of one request."""

    def __init__(self, seconds: float, rows: int, hits: int, bytes: int) -> None: ...
    def cancel(self) -> None: ...
    def check(self) -> None: ...
    def take(self, *, rows: int = 0, hits: int = 0, bytes: int = 0) -> None: ...
    def without_hits(self, hits: int | None = None) -> Limits:
        """Return the same limits but for hits: for searches whose hits are not those of the request."""

    def give_back_rows(self) -> None:
        """Forget the rows taken by a search that is done again."""

    @property
    def bounds_rows(self) -> bool: ...
    @property
    def seconds_left(self) -> float: ...
    @property
    def is_cancelled(self) -> bool: ...

class Search:
    """A request, and the arrays that it points into."""

    def __init__(
        self,
        queries: NDArray[np.uint8],
        radius: int,
        limit: int | None = None,
        filter_ids: NDArray[np.int64] | None = None,
        filter_mask: NDArray[np.bool_] | None = None,
        rerank: int = 0,
        embeddings: NDArray[np.uint8] | None = None,
        logits: NDArray[np.float32] | None = None,
        budget: int = 0,
        comparisons: int | None = None,
        limits: Limits | None = None,
    ) -> None: ...
    @property
    def reranks(self) -> bool: ...

class RowNames:
    """Ids of rows whose numbers are not their ids: those from `first_named` up."""

    def __init__(self, first_named: int) -> None: ...
    def add(self, ids: dict[int, Any]) -> None:
        """Remember ids by row; what is known stays."""

    def __len__(self) -> int: ...
    def are_known(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return 1 for each row whose id is known, 0 for others."""

    def of(self, rows: NDArray[np.int64]) -> list[Any] | None:
        """Return the ids of rows; None if one of them is not known."""

class MultiIndex:
    """Rows and the tables that find them; without tables, a linear scan."""

    def __init__(
        self,
        n_bytes: int,
        n_tables: int,
        radius: int,
        n_dims: int = 0,
        element: Element = ...,
        metric: Metric = ...,
        kernel: str | None = None,
        is_planned: bool = False,
        excerpt_bytes: int = 0,
    ) -> None: ...
    def add(
        self, ids: NDArray[np.int64], codes: NDArray[np.uint8], embeddings: NDArray[np.uint8] | None = None
    ) -> None: ...
    def delete(self, ids: NDArray[np.int64]) -> None: ...
    def replace(
        self, ids: NDArray[np.int64], codes: NDArray[np.uint8], embeddings: NDArray[np.uint8] | None = None
    ) -> None: ...
    def get(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return codes and embeddings, as bytes one after another."""

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending."""

    def compact(self) -> None: ...
    def settle(self) -> None:
        """Wait until no merge is due."""

    def search(
        self, search: Search, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16], NDArray[np.float32], NDArray[np.int64]]:
        """Return offsets, ids, distances, embedding distances, and three costs for each query."""

    def search_one(
        self,
        search: Search,
        hits_type: type[_HitsT],
        hit_type: type[tuple[object, ...]],
        names: RowNames | None = None,
    ) -> tuple[_HitsT | None, int, int, int]:
        """Return the hits of one query, as a tuple of tuples of the types given, and its costs.

        With names in place of row numbers; None if the name of one of the hits is not known.
        """

    def search_code(
        self,
        code: object,
        radius: object,
        limit: object,
        is_nearest: bool,
        hits_type: type[_HitsT],
        hit_type: type[tuple[object, ...]],
        names: RowNames | None = None,
        mask: object = None,
    ) -> _HitsT | None:
        """Return the hits of one code; None if an argument is not exactly what it should be, or a name not known."""

    def save(self, path: str) -> None: ...
    @staticmethod
    def open(path: str, mapped: bool, verify: bool = True) -> MultiIndex:
        """Open the index in a file. Without `verify`, checksums and row numbers are not checked.

        Such an index may give wrong answers if the file is damaged, but reads nothing outside of its arrays.
        """

    def __contains__(self, id: int) -> bool: ...
    def __len__(self) -> int: ...
    @property
    def n_parts(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def n_tables(self) -> int: ...
    @property
    def is_planned(self) -> bool: ...
    @property
    def parts(self) -> list[tuple[int, int, int, int]]:
        """Rows, tables, bytes of an excerpt and stored codes of each part, the largest first."""

    @property
    def radius(self) -> int: ...
    @property
    def n_dims(self) -> int: ...
    @property
    def element(self) -> Element: ...
    @property
    def metric(self) -> Metric: ...

def neighbor_kernels() -> list[str]:
    """Return the names of the kernels of NeighborCore that this CPU can run; the first is in use."""

def nearest_centres(
    rows: NDArray[np.float32], centres: NDArray[np.float32], threads: int = 1
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the nearest centre of each row, and the square of the Euclidean distance."""

class NeighborCore:
    """Vectors in cells, found by visiting the nearest cells of a query.

    The score of a row is -<query, row>, and half the square of the row is added for "l2": smaller is better.
    """

    def __init__(
        self,
        n_dims: int,
        metric: str,
        row_type: str,
        centres: NDArray[np.float32],
        codebooks: NDArray[np.float32],
        rotation: NDArray[np.float32] | None = None,
        kernel: str | None = None,
    ) -> None: ...
    def add(
        self,
        ids: NDArray[np.int64],
        vectors: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        *,
        threads: int = 1,
    ) -> None: ...
    def remove(self, ids: NDArray[np.int64]) -> int:
        """Remove the ids that are there, and return their number."""

    def contains(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return 1 for each id that is there, and 0 for the others."""

    def get(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of ids as they are kept, (ids, dims); an unknown id is an InputError."""

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending."""

    def compact(self) -> None: ...
    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        budget: int,
        comparisons: int,
        threads: int = 1,
        limits: Limits | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Return ids and distances, (queries, k), and the numbers of candidates and comparisons, (queries, 2).

        Missing rows have the id -1 and an infinite distance. At least k rows are compared if there are any to compare.
        """

    def search_cells(
        self,
        queries: NDArray[np.float32],
        cells: NDArray[np.int32],
        k: int,
        budget: int,
        comparisons: int,
        threads: int = 1,
        limits: Limits | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Search the cells given for each query, best first; negative numbers stand for no cell."""

    def state(self) -> dict[str, Any]:
        """Return everything as arrays, strings and numbers. The arrays are shared, and read-only."""

    @staticmethod
    def from_state(state: dict[str, Any], kernel: str | None = None) -> NeighborCore:
        """Return the index that state() told of. Anything that does not fit is an InputError."""

    def bytes(self) -> dict[str, int]:
        """Return the bytes of each part of the index."""

    def __len__(self) -> int: ...
    @property
    def n_generations(self) -> int: ...
    @property
    def n_cells(self) -> int: ...
    @property
    def n_dims(self) -> int: ...
