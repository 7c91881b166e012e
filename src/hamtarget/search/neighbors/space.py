"""The space of the vectors: what is asked of them, and what the native core gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import check_finite
from hamtarget.errors import DtypeError, InputError, ShapeError

Metric = Literal["cosine", "l2", "dot"]
Floats = NDArray[np.float32]

MIN_DIMS, MAX_DIMS = 1, 4096
# Bytes of a block of float32 rows that is worked on at a time.
_BLOCK_BYTES = 32 << 20
# Squares of larger numbers, summed over 4,096 dimensions, could leave the range of float32.
LARGEST = 1e17
# Whole numbers up to 255 are taken to be bytes if some is at least so large; smaller ones may be counts or flags.
_LEAST_OF_BYTES = 32


def check_metric(metric: str) -> Metric:
    """Return the metric if it is one.

    Raises:
        InputError: it is not.
    """
    for known in get_args(Metric):
        if metric == known:
            return known  # type: ignore[no-any-return]
    raise InputError(f"metric is {metric!r}; expected one of {', '.join(get_args(Metric))}")


def check_array(vectors: ArrayLike, *, name: str, n_dims: int | None = None) -> NDArray[Any]:
    """Return `vectors` as a (rows, dims) array of real numbers; finiteness is checked block by block, by `prepare`.

    Raises:
        DtypeError: the elements are not real numbers.
        ShapeError: there are not two dimensions, or not `n_dims` columns.
    """
    try:
        array = np.asarray(vectors)
    except ValueError as error:
        raise ShapeError(f"{name} are no array ({error}); expected (rows, dims), all rows of one length") from error
    if array.dtype.kind not in "fiu":
        raise DtypeError(
            f"{name} have dtype {array.dtype}; expected float32, float16, float64, uint8 or int8: convert them first"
        )
    if array.ndim == 1:
        raise ShapeError(
            f"{name} have 1 dimension; expected 2: (rows, dims). A single vector is a batch of one: {name}[None]"
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


def blocks_of(n_rows: int, n_dims: int) -> Iterator[slice]:
    """Yield slices that cover the rows, each with a bounded number of bytes."""
    rows = max(1, _BLOCK_BYTES // (4 * n_dims))
    for start in range(0, n_rows, rows):
        yield slice(start, min(start + rows, n_rows))


@dataclass(frozen=True)
class VectorSpace:
    """A space of vectors, moved and scaled so that float32 and int8 represent them well.

    Rows become (x - offset) * scale; rows under "cosine" get unit length before. An order by distance does not change:
    "l2" moves queries as well, and for "dot" and "cosine" the offset adds the same to all rows of a query.

    Attributes:
        metric: "cosine", "l2" or "dot".
        n_dims: numbers in a vector.
        offset: (n_dims,) float64.
        scale: a power of two.
        are_bytes: True if rows are uint8, and are kept so.
    """

    metric: Metric
    n_dims: int
    offset: NDArray[np.float64]
    scale: float
    are_bytes: bool

    @classmethod
    def of(cls, vectors: NDArray[Any], metric: Metric) -> VectorSpace:
        """Choose the space for these vectors, and check all of them.

        Raises:
            NotFiniteError: a number is NaN or infinite.
            InputError: a vector is zero where the metric is "cosine".
        """
        n_dims = vectors.shape[1]
        plain = cls(metric, n_dims, np.zeros(n_dims), 1.0, False)
        as_bytes = cls(metric, n_dims, np.zeros(n_dims), 1.0, True)
        may_be_bytes = metric != "cosine"
        if may_be_bytes and vectors.dtype == np.uint8:
            return as_bytes
        total, squares = np.zeros(n_dims), 0.0
        largest = 0.0
        for here in blocks_of(len(vectors), n_dims):
            block = plain._checked(vectors[here], name="vectors", first=here.start)
            largest = max(largest, float(np.abs(block).max(initial=0)))
            total += block.sum(axis=0)
            may_be_bytes = may_be_bytes and _are_bytes(block)
        if may_be_bytes and largest >= _LEAST_OF_BYTES:
            return as_bytes
        if largest > 1e150:
            raise InputError(f"vectors reach {largest:.3g}; expected at most 1e150: scale them")
        offset = total / max(1, len(vectors))
        for here in blocks_of(len(vectors), n_dims):
            moved = plain._checked(vectors[here], name="vectors", first=here.start) - offset
            squares += float(np.einsum("ij,ij->", moved, moved))
        size = np.sqrt(squares / max(1, vectors.size))
        # A power of two changes no digit.
        scale = 1.0 if metric == "cosine" or size == 0 else float(2.0 ** -np.round(np.log2(size)))
        return cls(metric, n_dims, offset, scale, False)

    @property
    def core_metric(self) -> Literal["l2", "dot"]:
        """The native core's metric: "cosine" is "dot" of unit vectors."""
        return "l2" if self.metric == "l2" else "dot"

    def rows(self, vectors: NDArray[Any], *, name: str = "vectors", first: int = 0) -> Floats:
        """Return vectors as rows of the core, float32.

        Args:
            vectors: of any number type.
            name: of the argument, for errors.
            first: number of the first row, for errors.

        Raises:
            NotFiniteError: a number is NaN or infinite.
            InputError: a vector is zero where the metric is "cosine", or too far away.
        """
        checked = self._checked(vectors, name=name, first=first)
        if self.are_bytes:
            if name == "vectors" and not _are_bytes(checked):
                raise InputError(
                    f"{name} are not whole numbers from 0 to 255, as all vectors were when the index was fitted; "
                    "fit again with all of them"
                )
            rows = checked.astype(np.float32)
        else:
            rows = ((checked - self.offset) * self.scale).astype(np.float32)
        self._refuse_far(rows, name=name, first=first)
        return rows

    def queries(self, vectors: NDArray[Any], *, name: str = "queries") -> tuple[Floats, NDArray[np.float64] | None]:
        """Return queries for the core, and for "dot" and "cosine" what turns the core's scores into distances.

        Returns:
            The queries, and None for "l2" or (queries, 2): distance = first * score + second.
        """
        if self.metric == "l2":
            return self.rows(vectors, name=name), None
        if self.metric == "cosine" and vectors.dtype == np.float32:
            squares = np.einsum("ij,ij->i", vectors, vectors)
            # Neither NaN nor too large nor too small for float32: most queries need no more than this.
            if ((squares > 1e-20) & (squares < 1e30)).all():
                short = vectors / np.sqrt(squares)[:, None]
                return short, np.stack([np.ones(len(short)), 1 - short @ self.offset], axis=1)
        checked = self._checked(vectors, name=name, first=0)
        if self.metric == "cosine":
            size = np.ones(len(checked))
        else:
            size = np.maximum(np.abs(checked).max(axis=1, initial=0).astype(np.float64), 1e-300)
        unit = checked / size[:, None]
        # score = -<q / size, (x - offset) scale>, so -<q, x> = size (score / scale - <q / size, offset>).
        moved = unit @ self.offset
        turn = np.stack([size / self.scale, -size * moved + (self.metric == "cosine")], axis=1)
        return unit.astype(np.float32), turn

    def distances(self, scores: NDArray[Any], turn: NDArray[np.float64] | None) -> Floats:
        """Return distances in the user's metric of scores of the core, (queries, k)."""
        if turn is None:
            found = scores / self.scale
        else:
            found = scores * turn[:, :1] + turn[:, 1:]
        if self.metric == "cosine":
            found = np.clip(found, 0.0, 2.0)
        with np.errstate(over="ignore"):
            return found.astype(np.float32)

    def _checked(self, vectors: NDArray[Any], *, name: str, first: int) -> NDArray[Any]:
        """Return finite numbers, of unit length where the metric is "cosine"; uint8 as they are where they are kept."""
        if self.are_bytes and vectors.dtype == np.uint8:
            return vectors
        numbers: NDArray[np.float64] = np.asarray(vectors, dtype=np.float64)
        check_finite(numbers, name=name if not first else f"{name} from row {first:,} on")
        if self.metric != "cosine":
            return numbers
        largest = np.abs(numbers).max(axis=1, initial=0)
        zero = np.flatnonzero(largest == 0)
        if len(zero):
            raise InputError(
                f"{name}: row {first + zero[0]:,} is zero, which has no direction for the metric cosine; "
                "remove such rows, or use the metric l2 or dot"
            )
        unit: NDArray[np.float64] = numbers / largest[:, None]
        unit /= np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
        return unit

    def _refuse_far(self, rows: Floats, *, name: str, first: int) -> None:
        if not len(rows):
            return
        reach = np.abs(rows).max(axis=1)
        far = np.flatnonzero(~(reach <= LARGEST))
        if len(far):
            raise InputError(
                f"{name}: row {first + far[0]:,} is too far from the vectors of the index for float32; "
                f"expected numbers up to {LARGEST / self.scale:.3g} from their mean"
            )


def _are_bytes(numbers: NDArray[Any]) -> bool:
    """Return True if all numbers are whole, from 0 to 255."""
    if numbers.dtype == np.uint8:
        return True
    return bool((numbers >= 0).all() and (numbers <= 255).all() and (numbers == np.rint(numbers)).all())
