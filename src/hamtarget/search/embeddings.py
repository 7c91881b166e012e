"""Embeddings that are kept with the codes, to rank hits better (HDT-E in the paper, section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import as_array, check_integer, contiguous, shown
from hamtarget._metric import MetricName
from hamtarget.codes import check_finite, check_vectors
from hamtarget.errors import DtypeError, InputError, ShapeError

ElementName = Literal["float32", "float16", "int8"]

# Rows of unit length are scaled so that nearly all of their numbers use most of int8's range: with 64 numbers or more,
# one in a thousand is above .4.
_UNIT_SCALE = 127 * 2.5

# Sums of int8 products stay within 32 bits.
MAX_DIMS = 16_384


@dataclass(frozen=True)
class Embeddings:
    """Kind of the embeddings that are kept with the codes of an index or a store.

    Example:
        >>> import numpy as np
        >>> from hamtarget import Asked, MultiIndex
        >>> index = MultiIndex(64, radius=2, embeddings=Embeddings(3, "float16", "cosine"))
        >>> index.add([1, 2], np.zeros((2, 8), dtype=np.uint8), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> index.search(Asked(np.zeros(8, dtype=np.uint8), embeddings=[0.0, 2.0, 0.0]), rerank=1)
        Hits(1 hit: Hit(id=2, distance=0, embedding_distance=0))

    Attributes:
        n_dims: numbers in a row, 1 to 16,384.
        dtype: float32, float16 (half the memory) or int8 (a quarter, and about three times as fast).
        metric: smaller is closer for all of them: "l2" is the Euclidean distance, "cosine" is 1 - cosine (1 for a row
            of zeros), "dot" is the negative inner product.
    """

    n_dims: int
    dtype: ElementName = "float32"
    metric: MetricName = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_dims", check_integer(self.n_dims, name="n_dims", most=MAX_DIMS))
        for name, value, known in (("dtype", self.dtype, ElementName), ("metric", self.metric, MetricName)):
            if not isinstance(value, str) or value not in get_args(known):
                raise InputError(f"{name} is {shown(value)}; expected one of {', '.join(get_args(known))}")

    def of_logits(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """Return the embeddings of this kind that an encoder's logits, (rows, n_dims), are: scaled to unit length."""
        if self.dtype == "int8" and self.metric == "cosine":
            return unit_int8(logits)
        unit = _unit(logits)
        if self.dtype == "int8":
            # Lengths count: all rows have one scale, and the few numbers that are too large for it are cut.
            unit = np.clip(np.rint(unit * _UNIT_SCALE), -127, 127)
        rows: NDArray[Any] = unit.astype(self.dtype)
        return rows

    def check(self, rows: ArrayLike, *, n_rows: int, name: str = "embeddings") -> NDArray[Any]:
        """Return `rows` as a contiguous (n_rows, n_dims) array of this dtype.

        Raises:
            DtypeError: int8 meets another dtype; floats of any width are converted.
            ShapeError: there are not `n_rows` rows of `n_dims` numbers.
            NotFiniteError: some number is NaN or infinite, perhaps only once it is converted.
        """
        array = as_array(rows, name=name)
        if array.ndim == 1:
            array = array[None, :]
        if array.ndim != 2:
            raise ShapeError(f"{name} have {array.ndim} dimensions; expected 2: (rows, {self.n_dims})")
        if array.shape != (n_rows, self.n_dims):
            raise ShapeError(f"{name} have shape {array.shape}; expected {(n_rows, self.n_dims)}: a row for each code")
        if self.dtype == "int8" and array.dtype != np.int8:
            raise DtypeError(f"{name} have dtype {array.dtype}; expected int8: scale and round them first")
        if self.dtype != "int8" and array.dtype.kind != "f":
            raise DtypeError(f"{name} have dtype {array.dtype}; expected {self.dtype} or another float")
        array = contiguous(array, self.dtype)
        check_finite(array, name=name)
        return array

    def check_queries(self, queries: ArrayLike, *, n_rows: int) -> NDArray[Any]:
        """Return embeddings of queries in the same way; they stay float32 where rows are float16."""
        wide = "float32" if self.dtype == "float16" else self.dtype
        return Embeddings(self.n_dims, wide, self.metric).check(queries, n_rows=n_rows, name="query embeddings")


def check_kind(embeddings: object) -> None:
    """Check that the kind of embeddings that an index is asked to keep is one.

    Raises:
        DtypeError: it is neither None nor `Embeddings`.
    """
    if embeddings is not None and not isinstance(embeddings, Embeddings):
        raise DtypeError(f"embeddings are {shown(embeddings)}; expected Embeddings(n_dims, dtype, metric) or None")


def unit_int8(rows: ArrayLike) -> NDArray[np.int8]:
    """Return rows as int8, a quarter of the memory, for embeddings that are ranked by "cosine".

    Each row is scaled so that its largest number becomes 127, and is rounded. Rows keep their directions, not their
    lengths: "l2" and "dot" would compare lengths that mean nothing. Rows and queries may be converted apart from each
    other; a row of zeros stays one.

    Example:
        >>> unit_int8([[0.5, -1.0, 0.25], [10.0, 0.0, 10.0]])
        array([[  64, -127,   32],
               [ 127,    0,  127]], dtype=int8)

    Args:
        rows: real numbers, (rows, dims), such as `encoder.logits(inputs)`.

    Raises:
        DtypeError: the elements are not numbers.
        ShapeError: there are not two dimensions.
        NotFiniteError: a number is NaN or infinite.
    """
    array = check_vectors(rows, name="rows")
    # Division first: the product of a large number and 127 could overflow.
    largest = np.maximum(np.abs(array).max(axis=1, keepdims=True, initial=0), np.float32(1e-30))
    result: NDArray[np.int8] = np.rint(array / largest * np.float32(127)).astype(np.int8)
    return result


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows scaled to unit length; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = rows / np.maximum(lengths, np.float32(1e-12))
    return scaled
