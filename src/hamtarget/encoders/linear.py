"""Codes that are the signs of a linear map: what LSH and ITQ share.

A method says only how it chooses the projection; checks, centring, logits and codes live here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_n_bits, check_vectors, from_logits
from hamtarget.errors import DtypeError, InputError, NotFittedError, ShapeError

# Rows are centred and projected so many cells at a time: the working memory stays near 64 MB.
_CELLS_AT_A_TIME = 4_000_000


class LinearEncoder(ABC):
    """An unsupervised encoder whose code is sgn((x - mean) projection).

    Inputs are (rows, columns); further dimensions are flattened, row by row.

    Args:
        n_bits: length of a code, a multiple of 8.
        seed: of every random choice; the same seed and inputs give the same codes.
    """

    def __init__(self, n_bits: int, *, seed: int = 0) -> None:
        self.n_bits = check_n_bits(n_bits)
        self.seed = check_count(seed, name="seed")
        self._learned: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None

    @property
    def mean(self) -> NDArray[np.float32]:
        """Mean of the fitted inputs, (columns,).

        Raises:
            NotFittedError: `fit` was not called.
        """
        return self._fitted()[0]

    @property
    def projection(self) -> NDArray[np.float32]:
        """The linear map from centred inputs to logits, (columns, n_bits).

        Raises:
            NotFittedError: `fit` was not called.
        """
        return self._fitted()[1]

    def fit(self, inputs: ArrayLike, similar: Any = None) -> Self:
        """The encoder itself, fitted to `inputs`; `similar` is ignored, since the method is unsupervised.

        Raises:
            InputError: the inputs are not finite numbers in at least 2 rows and 1 column, or the method cannot make
                `n_bits` bits of them.
        """
        vectors = _check_inputs(inputs)
        rows, columns = vectors.shape
        if rows < 2:
            raise ShapeError(f"inputs have {rows} rows; {type(self).__name__} needs at least 2 to fit")
        if columns < 1:
            raise ShapeError("inputs have 0 columns; expected at least 1")
        mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._learned = (mean, self._learn_projection(vectors, mean))
        return self

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Real values before the sign, (rows, n_bits).

        Raises:
            NotFittedError: `fit` was not called.
            InputError: the inputs are not finite numbers in as many columns as were fitted.
        """
        mean, projection = self._fitted()
        return project(_check_inputs(inputs, n_columns=len(mean)), mean, projection)

    def encode(self, inputs: ArrayLike) -> Codes:
        """Packed codes, (rows, n_bits / 8).

        Raises:
            NotFittedError: `fit` was not called.
            InputError: the inputs are not finite numbers in as many columns as were fitted.
        """
        mean, projection = self._fitted()
        vectors = _check_inputs(inputs, n_columns=len(mean))
        codes = np.empty((len(vectors), self.n_bits // 8), dtype=np.uint8)
        # Logits take 32 times the memory of codes: only one block of them exists at a time.
        for block in blocks(vectors):
            codes[block] = from_logits(project(vectors[block], mean, projection))
        return codes

    @abstractmethod
    def _learn_projection(self, vectors: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
        """The linear map from centred inputs to logits, (columns, n_bits)."""

    def _fitted(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if self._learned is None:
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet: call fit first")
        return self._learned


def check_count(count: int, *, name: str) -> int:
    """`count` itself, if it is an integer of 0 or more.

    Raises:
        InputError: it is not.
    """
    if not isinstance(count, int | np.integer) or isinstance(count, bool):
        raise DtypeError(f"{name} is {count!r}; expected an integer")
    if count < 0:
        raise InputError(f"{name} is {count}; expected 0 or more")
    return int(count)


def blocks(vectors: NDArray[Any]) -> Iterator[slice]:
    """Consecutive slices that cover the rows of `vectors`, each of bounded size."""
    size = max(1, _CELLS_AT_A_TIME // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), size):
        yield slice(start, start + size)


def project(
    vectors: NDArray[np.float32], mean: NDArray[np.float32], projection: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(vectors - mean) projection, (rows, columns of `projection`)."""
    result = np.empty((len(vectors), projection.shape[1]), dtype=np.float32)
    for block in blocks(vectors):
        # Centring first: projecting a large mean and subtracting it afterwards would cancel digits.
        np.matmul(vectors[block] - mean, projection, out=result[block])
    return result


def _check_inputs(inputs: ArrayLike, *, n_columns: int | None = None) -> NDArray[np.float32]:
    array = np.asarray(inputs)
    if array.ndim > 2:
        array = array.reshape(len(array), math.prod(array.shape[1:]))
    return check_vectors(array, name="inputs", n_columns=n_columns)
