"""Encoders whose codes are the signs of a linear map.

A method only chooses the projection. Checks, centring, logits and codes are here.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget._metric import MetricName, check_metric
from hamtarget.codes import Codes, check_n_bits, check_vectors, from_logits, unit_rows
from hamtarget.errors import DtypeError, InputError, NotFittedError, ShapeError

LINEAR_FILE_NAME = "linear_encoder.bin"
"""Name of the file in the folder of a saved encoder."""
LINEAR_FORMAT = 1

# Cells centred and projected at a time: the working memory stays near 64 MB.
_CELLS_AT_A_TIME = 4_000_000


class LinearEncoder(ABC):
    """An unsupervised encoder whose code is sgn((x - mean) projection).

    Inputs are (rows, columns). Further dimensions are flattened.

    Args:
        n_bits: bits of a code, a multiple of 8.
        seed: of every random choice; the same seed and inputs give the same codes.
        metric: by what vectors are near: "l2", "cosine" or "dot". A store of the encoder then keeps the vectors and
            finds the nearest of them. With "cosine", the lengths of inputs do not count. None: a store keeps codes.
    """

    radius: None = None
    """The Hamming distance target: None, since these codes are trained for none."""

    neighbor_metric: MetricName | None
    """By what vectors are near, as `metric` said; None: it was not given."""

    def __init__(self, n_bits: int, *, seed: int = 0, metric: MetricName | None = None) -> None:
        self.n_bits = check_n_bits(n_bits)
        self.seed = check_count(seed, name="seed")
        self.neighbor_metric = None if metric is None else check_metric(metric)
        self._learned: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        self._input_shape: tuple[int, ...] = ()

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

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one of the fitted inputs.

        Raises:
            NotFittedError: `fit` was not called.
        """
        self._fitted()
        return self._input_shape

    def fit(self, inputs: ArrayLike, similar: Any = None) -> Self:
        """Fit the encoder to `inputs` and return it.

        Args:
            inputs: finite numbers, at least 2 rows.
            similar: ignored, since the method is unsupervised; here so that methods can be exchanged.

        Raises:
            InputError: the inputs are not finite numbers in at least 2 rows and 1 column, the method cannot make
                `n_bits` bits of them, or a row is all zeros under "cosine".
        """
        vectors = _check_inputs(inputs)
        rows, columns = vectors.shape
        if rows < 2:
            raise ShapeError(f"inputs have {rows} rows; {type(self).__name__} needs at least 2 to fit")
        if columns < 1:
            raise ShapeError("inputs have 0 columns; expected at least 1")
        if self.neighbor_metric == "cosine":
            check_directions(vectors, name="inputs")
        vectors = self._scaled(vectors)
        mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        # Products of another layout may round differently: a saved encoder has this one, too.
        self._learned = (mean, np.ascontiguousarray(self._learn_projection(vectors, mean)))
        self._input_shape = np.shape(inputs)[1:]
        return self

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits).

        Raises:
            NotFittedError: `fit` was not called.
            InputError: the inputs are not finite numbers in as many columns as were fitted.
        """
        mean, projection = self._fitted()
        vectors = _check_inputs(inputs, n_columns=len(mean))
        logits = np.empty((len(vectors), self.n_bits), dtype=np.float32)
        for block in blocks(vectors):
            logits[block] = project(self._scaled(vectors[block]), mean, projection)
        return logits

    def encode(self, inputs: ArrayLike) -> Codes:
        """Return packed codes, (rows, n_bits / 8).

        Raises:
            NotFittedError: `fit` was not called.
            InputError: the inputs are not finite numbers in as many columns as were fitted.
        """
        mean, projection = self._fitted()
        vectors = _check_inputs(inputs, n_columns=len(mean))
        codes = np.empty((len(vectors), self.n_bits // 8), dtype=np.uint8)
        # Logits take 32 times the memory of codes: only one block of them exists at a time.
        for block in blocks(vectors):
            codes[block] = from_logits(project(self._scaled(vectors[block]), mean, projection))
        return codes

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the logits scaled to unit length, (rows, n_bits).

        Raises:
            NotFittedError: `fit` was not called.
            InputError: the inputs are not finite numbers in as many columns as were fitted.
        """
        return unit_rows(self.logits(inputs))

    def save(self, folder: str | Path) -> None:
        """Write the encoder to `folder`, from where `hamtarget.open_encoder` opens it with numpy alone.

        Raises:
            NotFittedError: `fit` was not called.
        """
        mean, projection = self._fitted()
        description = {
            "format": LINEAR_FORMAT,
            "method": type(self).__name__,
            "input_shape": self._input_shape,
            "options": self._options(),
        }
        numbers = b"".join(array.astype("<f4").tobytes() for array in (mean, projection))
        content = json.dumps(description).encode() + b"\n" + numbers
        write_atomically(Path(folder) / LINEAR_FILE_NAME, content + hashlib.sha256(content).digest())

    def __repr__(self) -> str:
        fitted = f"inputs {self._input_shape}" if self._learned else "not fitted"
        metric = "" if self.neighbor_metric is None else f", metric={self.neighbor_metric!r}"
        return f"{type(self).__name__}(n_bits={self.n_bits}, seed={self.seed}{metric}) [{fitted}]"

    def _restore(
        self, input_shape: tuple[int, ...], mean: NDArray[np.float32], projection: NDArray[np.float32]
    ) -> Self:
        """Take what `fit` learned before the encoder was saved."""
        self._input_shape, self._learned = input_shape, (mean, projection)
        return self

    def _options(self) -> dict[str, Any]:
        """Return the arguments that make such an encoder, which is not fitted."""
        return {"n_bits": self.n_bits, "seed": self.seed, "metric": self.neighbor_metric}

    def _scaled(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return unit_rows(vectors) if self.neighbor_metric == "cosine" else vectors

    @abstractmethod
    def _learn_projection(self, vectors: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the linear map from centred inputs to logits, (columns, n_bits)."""

    def _fitted(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if self._learned is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._learned


def check_count(count: int, *, name: str) -> int:
    """Return `count` if it is an integer of 0 or more.

    Raises:
        DtypeError: `count` is not an integer.
        InputError: `count` is negative.
    """
    if not isinstance(count, int | np.integer) or isinstance(count, bool):
        raise DtypeError(f"{name} is {count!r}; expected an integer")
    if count < 0:
        raise InputError(f"{name} is {count}; expected 0 or more")
    return int(count)


def check_directions(vectors: NDArray[Any], *, name: str) -> None:
    """Check that every row has a cosine with others.

    Raises:
        InputError: a row is all zeros.
    """
    for block in blocks(vectors):
        zeros = np.flatnonzero(~vectors[block].any(axis=1))
        if len(zeros):
            raise InputError(
                f"{name}: row {block.start + zeros[0]:,} is all zeros, which has no cosine; leave it out, or use "
                "metric 'l2' or 'dot'"
            )


def blocks(vectors: NDArray[Any]) -> Iterator[slice]:
    """Yield consecutive slices that cover the rows of `vectors`, each of bounded size."""
    size = max(1, _CELLS_AT_A_TIME // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), size):
        yield slice(start, start + size)


def project(
    vectors: NDArray[np.float32], mean: NDArray[np.float32], projection: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return (vectors - mean) projection, (rows, columns of `projection`)."""
    result = np.empty((len(vectors), projection.shape[1]), dtype=np.float32)
    for block in blocks(vectors):
        # Centring comes first: projecting a large mean and subtracting it afterwards would cancel digits.
        np.matmul(vectors[block] - mean, projection, out=result[block])
    return result


def _check_inputs(inputs: ArrayLike, *, n_columns: int | None = None) -> NDArray[np.float32]:
    array = np.asarray(inputs)
    if array.ndim > 2:
        array = array.reshape(len(array), math.prod(array.shape[1:]))
    return check_vectors(array, name="inputs", n_columns=n_columns)
