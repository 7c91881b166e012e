"""Iterative quantization (Gong and Lazebnik, CVPR 2011): principal components, rotated to be close to their signs.

`learn_vector_codes` makes codes of vectors by it where nobody has trained a model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._metric import MetricName
from hamtarget.encoders.linear import LinearEncoder, blocks, check_count, check_directions, project
from hamtarget.encoders.lsh import LSH
from hamtarget.errors import InputError, ShapeError

MOST_LEARNED_FROM = 25_000
"""Vectors that codes are learned from, if there are more."""

_N_BITS = 64


class ITQ(LinearEncoder):
    """Codes that are the signs of rotated principal components, learned without labels.

    V are the first `n_bits` principal components, R a rotation that brings V R close to its signs. Starting from a
    random R, each iteration takes B = sgn(V R), then the R that minimises |B - V R|^2 (orthogonal Procrustes).
    Fitting takes rows * n_bits + columns^2 cells of memory.

    Args:
        n_bits: bits of a code, a multiple of 8 and at most the number of columns.
        iterations: how many times the rotation is improved; 0 leaves it random.
        seed: of the first rotation.
        metric: by what vectors are near: "l2", "cosine" or "dot". A store of the encoder then keeps the vectors and
            finds the nearest of them. With "cosine", the lengths of inputs do not count. None: a store keeps codes.

    Attributes:
        quantization_errors: mean of |B - V R|^2 over rows, with the first rotation and after each iteration. Except
            for rounding it never rises. Empty before `fit`, and not saved.

    Example:
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).normal(size=(100, 16))
        >>> ITQ(n_bits=8).fit(vectors).encode(vectors).shape
        (100, 1)
    """

    def __init__(self, n_bits: int, *, iterations: int = 50, seed: int = 0, metric: MetricName | None = None) -> None:
        super().__init__(n_bits, seed=seed, metric=metric)
        self.iterations = check_count(iterations, name="iterations")
        self.quantization_errors: tuple[float, ...] = ()

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "iterations": self.iterations}

    def _learn_projection(self, vectors: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
        columns = vectors.shape[1]
        if self.n_bits > columns:
            raise InputError(
                f"n_bits is {self.n_bits}, but inputs have {columns} columns: ITQ makes at most one bit for each; "
                "choose fewer bits, or LSH"
            )
        directions = _principal_directions(vectors, mean, self.n_bits)
        components = project(vectors, mean, directions.astype(np.float32))
        rotation = _random_rotation(self.n_bits, self.seed)
        error, correlation = _quantize(components, rotation)
        errors = [error]
        for _ in range(self.iterations):
            left, _, right = np.linalg.svd(correlation)
            rotation = right.T @ left.T
            error, correlation = _quantize(components, rotation)
            errors.append(error)
        self.quantization_errors = tuple(errors)
        return (directions @ rotation).astype(np.float32)


def _principal_directions(
    vectors: NDArray[np.float32], mean: NDArray[np.float32], n_directions: int
) -> NDArray[np.float64]:
    """Return orthonormal directions of largest variance, (columns, n_directions), the largest first."""
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
    for block in blocks(vectors):
        centred = vectors[block].astype(np.float64) - mean
        covariance += centred.T @ centred
    _, directions = np.linalg.eigh(covariance / len(vectors))
    directions = directions[:, ::-1][:, :n_directions]
    # An eigenvector's sign is arbitrary and differs between LAPACKs: the largest element is made positive.
    largest = np.abs(directions).argmax(axis=0)
    signs: NDArray[np.float64] = np.sign(directions[largest, np.arange(n_directions)])
    return directions * signs


def _random_rotation(n_bits: int, seed: int) -> NDArray[np.float64]:
    """Return a uniformly random orthogonal matrix, (n_bits, n_bits)."""
    orthogonal, triangle = np.linalg.qr(np.random.default_rng(seed).standard_normal((n_bits, n_bits)))
    # Without these signs the result depends on the LAPACK, and is not uniform (Mezzadri 2007).
    signs: NDArray[np.float64] = np.sign(np.diag(triangle))
    return orthogonal * signs


def _quantize(components: NDArray[np.float32], rotation: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return the mean of |B - V R|^2 over rows, and B^T V, for the signs B of V R."""
    error = 0.0
    correlation = np.zeros(rotation.shape)
    for block in blocks(components):
        rotated = components[block] @ rotation.astype(np.float32)
        signs = np.where(rotated > 0, np.float32(1), np.float32(-1))
        error += float(np.square(signs - rotated).sum(dtype=np.float64))
        correlation += signs.T @ components[block]
    return error / len(components), correlation


def learn_vector_codes(vectors: NDArray[Any], metric: MetricName, *, n_bits: int | None = None) -> LinearEncoder:
    """Return an encoder for a store that finds near vectors: ITQ, or LSH where there are more bits than columns.

    In a folder, the nearest are found by the vectors themselves, so the codes need no long training.

    Args:
        vectors: finite numbers, (rows, columns); an array that is mapped from a file is not copied.
        metric: by what vectors are near.
        n_bits: bits of a code; 64 by default.

    Raises:
        ShapeError: there are fewer than 2 rows.
        NotFiniteError: an element is NaN or infinite.
        InputError: a row is all zeros under "cosine".
    """
    if len(vectors) < 2:
        raise ShapeError(
            f"vectors have {len(vectors)} rows; a new store learns its codes from the first vectors, at least 2, "
            "better thousands: begin with more of them and add single ones afterwards, or pass a model"
        )
    if metric == "cosine":
        check_directions(vectors, name="vectors")
    if len(vectors) > MOST_LEARNED_FROM:
        chosen = np.random.default_rng(0).choice(len(vectors), MOST_LEARNED_FROM, replace=False, shuffle=False)
        vectors = vectors[np.sort(chosen)]
    n_bits = _N_BITS if n_bits is None else n_bits
    method = ITQ if n_bits <= vectors.shape[1] else LSH
    return method(n_bits, metric=metric).fit(vectors)
