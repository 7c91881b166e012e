"""Metrics, and the space of the vectors under one: what is asked of vectors, and what the native core gets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import check_finite
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.query import PLAIN_WORK, Work

Floats = NDArray[np.float32]
Wide = NDArray[np.float64]

MIN_DIMS, MAX_DIMS = 1, 4096
# Bytes of a block of float32 rows that is worked on at a time.
_BLOCK_BYTES = 32 << 20
# Squares of larger numbers, summed over 4,096 dimensions, could leave the range of float32.
LARGEST = 1e17
# Whole numbers up to 255 are taken to be bytes if some is at least so large; smaller ones may be counts or flags.
_LEAST_OF_BYTES = 32
# Squares between these lose nothing in float32, summed and then divided by.
_SAFE_SQUARES = (1e-20, 1e30)


class Comparison(ABC):
    """How vectors are compared once they are prepared: what the native core calls a metric, described for numpy.

    The score of a row is -<query, row>, plus the row's bias: a smaller score is nearer.
    """

    name: ClassVar[str]
    """Name of the native core's metric."""
    follows_moves: ClassVar[bool]
    """True if a distance stays as it is where query and row are moved alike."""

    @staticmethod
    @abstractmethod
    def biases(rows: Floats) -> Floats:
        """Return what the score of each row adds to the product."""

    @staticmethod
    @abstractmethod
    def apart(queries: Wide, rows: Wide) -> Wide:
        """Return the distance of each pair, a query and a row. The queries may be overwritten."""

    @staticmethod
    @abstractmethod
    def scores(distances: Wide, lengths: Wide) -> Wide:
        """Return the scores that distances to queries of these lengths stand for."""


class _Euclidean(Comparison):
    name = "l2"
    follows_moves = True

    @staticmethod
    def biases(rows: Floats) -> Floats:
        squares: Floats = np.einsum("ij,ij->i", rows, rows) * np.float32(0.5)
        return squares

    @staticmethod
    def apart(queries: Wide, rows: Wide) -> Wide:
        queries -= rows
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", queries, queries)))

    @staticmethod
    def scores(distances: Wide, lengths: Wide) -> Wide:
        return (distances**2 - lengths**2) / 2


class _Product(Comparison):
    name = "dot"
    follows_moves = False

    @staticmethod
    def biases(rows: Floats) -> Floats:
        return np.zeros(len(rows), dtype=np.float32)

    @staticmethod
    def apart(queries: Wide, rows: Wide) -> Wide:
        return np.asarray(-np.einsum("ij,ij->i", queries, rows))

    @staticmethod
    def scores(distances: Wide, lengths: Wide) -> Wide:
        return distances


EUCLIDEAN: Comparison = _Euclidean()
"""By the Euclidean distance."""
PRODUCT: Comparison = _Product()
"""By the negative inner product."""


@dataclass(frozen=True)
class Metric:
    """A metric of `NeighborIndex`. One more is one more entry of `METRICS`, and nothing else.

    Attributes:
        name: by which users ask for it.
        comparison: of vectors that are prepared.
        prepare: returns vectors as they are compared, from (finite numbers, name of the argument, number of the first
            row), where the last two are for errors. None: vectors are compared as they are.
        distance: returns distances from those of the comparison. None: they are the same.
    """

    name: str
    comparison: Comparison
    prepare: Callable[[NDArray[Any], str, int], NDArray[Any]] | None = None
    distance: Callable[[NDArray[Any]], NDArray[Any]] | None = None


def _unit_length(numbers: NDArray[Any], name: str, first: int) -> NDArray[Any]:
    squares = np.einsum("ij,ij->i", numbers, numbers)
    least, most = _SAFE_SQUARES
    if ((squares > least) & (squares < most)).all():
        return np.asarray(numbers / np.sqrt(squares)[:, None])
    largest = np.abs(numbers).max(axis=1, initial=0)
    zero = np.flatnonzero(largest == 0)
    if len(zero):
        raise InputError(
            f"{name}: row {first + zero[0]:,} is zero, which has no direction for the metric cosine; "
            "remove such rows, or use the metric l2 or dot"
        )
    unit = numbers / largest[:, None]
    return np.asarray(unit / np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None])


def _from_cosine(negative: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.minimum(np.maximum(negative + 1, 0), 2))


METRICS = {
    metric.name: metric
    for metric in (
        Metric("cosine", PRODUCT, _unit_length, _from_cosine),
        Metric("l2", EUCLIDEAN),
        Metric("dot", PRODUCT),
    )
}
"""The metrics, by name."""


def metric_of(name: object) -> Metric:
    """Return the metric of a name.

    Raises:
        InputError: there is none.
    """
    metric = METRICS.get(name) if isinstance(name, str) else None
    if metric is None:
        raise InputError(f"metric is {str(name)[:60]!r}; expected one of {', '.join(METRICS)}")
    return metric


def check_array(vectors: ArrayLike, *, name: str, n_dims: int | None = None, instead: str = "") -> NDArray[Any]:
    """Return `vectors` as a (rows, dims) array of real numbers. The space checks block by block that they are finite.

    Args:
        vectors: of any type that numpy makes an array of.
        name: of the argument, for errors.
        n_dims: columns that are expected; by default any number.
        instead: what to do with a single vector, for errors.

    Raises:
        DtypeError: the elements are not real numbers.
        ShapeError: there are not two dimensions, or not `n_dims` columns.
    """
    array = _numbers(vectors, name=name)
    if array.ndim == 1:
        raise ShapeError(
            f"{name} have 1 dimension; expected 2: (rows, dims). "
            + (instead or f"A single vector is a batch of one: {name}[None]")
        )
    if array.ndim != 2:
        raise ShapeError(f"{name} have {array.ndim} dimensions; expected 2: (rows, dims)")
    if n_dims is None and not MIN_DIMS <= array.shape[1] <= MAX_DIMS:
        raise ShapeError(f"{name} have {array.shape[1]:,} columns; expected {MIN_DIMS} to {MAX_DIMS:,}")
    if n_dims is not None and array.shape[1] != n_dims:
        raise ShapeError(
            f"{name} have {array.shape[1]:,} columns; expected {n_dims:,}, as the vectors of the index have"
        )
    return array


def check_one(vector: ArrayLike, *, name: str, n_dims: int, instead: str) -> NDArray[Any]:
    """Return one vector, (dims,), as a batch of one; `instead` is the call for several.

    Raises:
        As `check_array`.
    """
    array = _numbers(vector, name=name)
    if array.shape != (n_dims,):
        raise ShapeError(
            f"{name} has shape {array.shape}; expected one vector like the index's, ({n_dims},): for several, call "
            f"{instead}"
        )
    return array[None]


def _numbers(vectors: ArrayLike, *, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(vectors)
    except ValueError as error:
        raise ShapeError(f"{name}: not an array ({error}); expected (rows, dims), all rows of one length") from error
    if array.dtype.kind not in "fiu":
        raise DtypeError(
            f"{name}: dtype {array.dtype}; expected float32, float16, float64, uint8 or int8: convert them first"
        )
    return array


def blocks_of(n_rows: int, n_dims: int, work: Work = PLAIN_WORK) -> Iterator[slice]:
    """Yield slices that cover the rows, each with a bounded number of bytes.

    Raises:
        LimitError: the time is over, or the work was cancelled.
    """
    rows = max(1, _BLOCK_BYTES // (4 * n_dims))
    for start in range(0, n_rows, rows):
        if work.limits is not None:
            work.limits.check()
        yield slice(start, min(start + rows, n_rows))


@dataclass(frozen=True)
class VectorSpace:
    """A space of vectors, moved and scaled so that float32 and int8 represent them well.

    Rows become (x - offset) * scale, where x is prepared as the metric says. An order by distance does not change:
    comparisons that follow moves move queries as well, and to others the offset adds the same for all rows of a query.

    Attributes:
        metric: of the distances.
        n_dims: numbers in a vector.
        offset: (n_dims,) float64.
        scale: a power of two.
        are_bytes: True if rows are uint8, and are kept so.
    """

    metric: Metric
    n_dims: int
    offset: Wide
    scale: float
    are_bytes: bool

    @classmethod
    def of(cls, vectors: NDArray[Any], metric: Metric, work: Work = PLAIN_WORK) -> VectorSpace:
        """Choose the space for these vectors, and check all of them.

        Raises:
            NotFiniteError: a number is NaN or infinite.
            InputError: a vector is zero where the metric is "cosine".
            LimitError: the time is over, or the work was cancelled.
        """
        n_dims = vectors.shape[1]
        plain = cls(metric, n_dims, np.zeros(n_dims), 1.0, False)
        as_bytes = cls(metric, n_dims, np.zeros(n_dims), 1.0, True)
        may_be_bytes = metric.prepare is None
        if may_be_bytes and vectors.dtype == np.uint8:
            return as_bytes
        total, squares = np.zeros(n_dims), 0.0
        largest = 0.0
        for here in blocks_of(len(vectors), n_dims, work):
            block = plain._prepared(vectors[here], name="vectors", first=here.start)
            largest = max(largest, float(np.abs(block).max(initial=0)))
            total += block.sum(axis=0)
            may_be_bytes = may_be_bytes and _are_bytes(block)
        if may_be_bytes and largest >= _LEAST_OF_BYTES:
            return as_bytes
        if largest > 1e150:
            raise InputError(f"vectors reach {largest:.3g}; expected at most 1e150: scale them")
        offset = total / max(1, len(vectors))
        for here in blocks_of(len(vectors), n_dims, work):
            moved = plain._prepared(vectors[here], name="vectors", first=here.start) - offset
            squares += float(np.einsum("ij,ij->", moved, moved))
        size = np.sqrt(squares / max(1, vectors.size))
        # A power of two changes no digit.
        scale = 1.0 if size == 0 else float(2.0 ** -np.round(np.log2(size)))
        return cls(metric, n_dims, offset, scale, False)

    @property
    def comparison(self) -> Comparison:
        """How prepared vectors are compared."""
        return self.metric.comparison

    def rows(self, vectors: NDArray[Any], *, name: str = "vectors", first: int = 0) -> Floats:
        """Return vectors as rows of the core, float32 and contiguous.

        Args:
            vectors: of any number type, in any order of memory.
            name: of the argument, for errors.
            first: number of the first row, for errors.

        Raises:
            NotFiniteError: a number is NaN or infinite.
            InputError: a vector is zero where the metric is "cosine", or too far away.
        """
        prepared = self._prepared(vectors, name=name, first=first)
        with np.errstate(over="ignore"):
            if self.are_bytes:
                if name == "vectors" and not _are_bytes(prepared):
                    raise InputError(
                        f"{name} are not whole numbers from 0 to 255, as all vectors were when the index was fitted; "
                        "fit again with all of them"
                    )
                rows = prepared.astype(np.float32, order="C")
            else:
                rows = ((prepared - self.offset) * self.scale).astype(np.float32, order="C")
        self._refuse_far(rows, name=name, first=first)
        return rows

    def queries(self, vectors: NDArray[Any], *, name: str = "queries") -> tuple[Floats, Wide | None]:
        """Return queries for the core, and what turns the core's distances into those of vectors that were not moved.

        Returns:
            The queries, and None where only the scale counts, or (queries, 2): distance = first * core's + second.
        """
        if self.comparison.follows_moves:
            return self.rows(vectors, name=name), None
        # Queries of float32 are not made wider: nothing is subtracted from them.
        kind = np.float32 if vectors.dtype == np.float32 else np.float64
        numbers = np.asarray(vectors, dtype=kind, order="C")
        _check_finite(numbers, name=name)
        turn = np.empty((len(numbers), 2))
        if self.metric.prepare is None:
            size = np.maximum(np.abs(numbers).max(axis=1, initial=0).astype(np.float64), 1e-300)
            unit = numbers / size[:, None]
        else:
            size, unit = 1.0, self.metric.prepare(numbers, name, 0)
        # The core gives d = -<q / size, (x - offset) scale>, and -<q, x> = size (d / scale - <q / size, offset>).
        turn[:, 0] = size / self.scale
        turn[:, 1] = -size * (unit @ self.offset)
        return np.asarray(unit, dtype=np.float32), turn

    def distances(self, found: NDArray[Any], turn: Wide | None) -> Floats:
        """Return distances in the user's metric of those of the core, (queries, k)."""
        found = found / self.scale if turn is None else found * turn[:, :1] + turn[:, 1:]
        if self.metric.distance is not None:
            found = self.metric.distance(found)
        with np.errstate(over="ignore"):
            return found.astype(np.float32)

    def vectors(self, rows: Floats) -> Floats:
        """Return rows of the core as vectors, prepared as the metric says."""
        return (rows / self.scale + self.offset).astype(np.float32)

    def _prepared(self, vectors: NDArray[Any], *, name: str, first: int) -> NDArray[Any]:
        """Return finite numbers, prepared as the metric says; uint8 as they are where they are kept."""
        if self.are_bytes and vectors.dtype == np.uint8:
            return vectors
        numbers: Wide = np.asarray(vectors, dtype=np.float64, order="C")
        _check_finite(numbers, name=name if not first else f"{name} from row {first:,} on")
        return numbers if self.metric.prepare is None else self.metric.prepare(numbers, name, first)

    def _refuse_far(self, rows: Floats, *, name: str, first: int) -> None:
        if not rows.size or -LARGEST <= rows.min() <= rows.max() <= LARGEST:
            return
        far = np.flatnonzero(~(np.abs(rows).max(axis=1) <= LARGEST))
        raise InputError(
            f"{name}: row {first + far[0]:,} is too far from the vectors of the index for float32; "
            f"expected numbers up to {LARGEST / self.scale:.3g} from their mean"
        )


def _check_finite(numbers: NDArray[Any], *, name: str) -> None:
    # A number that is not finite makes the sum so; to look at each of them takes longer.
    if not math.isfinite(np.einsum("ij->", numbers)):
        check_finite(numbers, name=name)


def _are_bytes(numbers: NDArray[Any]) -> bool:
    """Return True if all numbers are whole, from 0 to 255."""
    if numbers.dtype == np.uint8:
        return True
    return bool((numbers >= 0).all() and (numbers <= 255).all() and (numbers == np.rint(numbers)).all())
