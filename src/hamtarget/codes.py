"""Packed binary codes: pack them, compare them, and check those that come from outside.

A code of `n_bits` bits is a row of `n_bits / 8` bytes, little-endian in its bits: bit k is bit `k % 8` of byte
`k // 8`, as in `numpy.packbits(bitorder="little")` and in faiss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import as_array, check_integer, contiguous, shown
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError

__all__ = ["distances", "from_logits", "pack", "unpack"]

Codes = NDArray[np.uint8]

MIN_BITS = 8
MAX_BITS = 4096

# So few numbers are checked as bytes.
_FEW_NUMBERS = 4096

# Cells of the distance matrix computed at a time: the working memory stays near 64 MB.
_CELLS_AT_A_TIME = 8_000_000
# Shorter rows are divided by this length, as in torch: a row of zeros stays one.
_SHORTEST = np.float32(1e-12)


def check_n_bits(n_bits: int) -> int:
    """Return `n_bits` if it is a length that codes can have.

    Raises:
        DtypeError: `n_bits` is not an integer.
        InputError: `n_bits` is not a multiple of 8 from 8 to 4,096.
    """
    n_bits = check_integer(n_bits, name="n_bits", least=None)
    if not MIN_BITS <= n_bits <= MAX_BITS or n_bits % 8:
        raise InputError(f"n_bits is {shown(n_bits)}; expected a multiple of 8 from {MIN_BITS} to {MAX_BITS:,}")
    return n_bits


def check_radius(radius: int, n_bits: int) -> int:
    """Return `radius` if it is a Hamming radius for codes of `n_bits` bits.

    Raises:
        DtypeError: `radius` is not an integer.
        InputError: `radius` is negative, or so large that every pair of codes lies within it.
    """
    return check_integer(radius, name="radius", least=0, most=n_bits - 1, note=f"less than the {n_bits} bits of a code")


def check_codes(codes: ArrayLike, n_bits: int, *, name: str = "codes") -> Codes:
    """Return `codes` as a contiguous (rows, n_bits / 8) array of uint8. A single code becomes one row.

    Raises:
        DtypeError: the elements are not uint8.
        ShapeError: a row does not hold `n_bits` bits.
    """
    array = as_array(codes, name=name)
    if array.dtype != np.uint8:
        raise DtypeError(f"{name} have dtype {array.dtype}; expected packed uint8 (see hamtarget.codes.pack)")
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2:
        raise ShapeError(f"{name} have {array.ndim} dimensions; expected 2: (rows, bytes)")
    if array.shape[1] * 8 != n_bits:
        raise ShapeError(f"{name} have {array.shape[1]} bytes a row; {n_bits} bits take {n_bits // 8}")
    return np.ascontiguousarray(array)


def check_vectors(vectors: ArrayLike, *, name: str = "vectors", n_columns: int | None = None) -> NDArray[np.float32]:
    """Return `vectors` as a contiguous (rows, columns) array of finite float32.

    Raises:
        DtypeError: the elements are not numbers.
        ShapeError: there are not two dimensions, or not `n_columns` columns.
        NotFiniteError: an element is NaN or infinite.
    """
    array = as_array(vectors, name=name)
    if array.dtype.kind not in "fiub":
        raise DtypeError(f"{name} have dtype {array.dtype}; expected numbers")
    if array.ndim != 2:
        raise ShapeError(f"{name} have {array.ndim} dimensions; expected 2: (rows, columns)")
    if n_columns is not None and array.shape[1] != n_columns:
        raise ShapeError(f"{name} have {array.shape[1]} columns; expected {n_columns}")
    array = contiguous(array, np.float32)
    check_finite(array, name=name)
    return array


def check_finite(array: NDArray[Any], *, name: str) -> None:
    """Check that every element is a finite number.

    Raises:
        NotFiniteError: a row holds NaN or infinity. The error names the first such row and counts them.
    """
    # For one query, to look for a False among bytes takes a third of the time of `all`.
    if array.size <= _FEW_NUMBERS and array.dtype.kind == "f" and b"\0" not in np.isfinite(array).tobytes():
        return
    if array.dtype.kind != "f" or array.size == 0:
        return
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if len(bad):
        raise NotFiniteError(
            f"{name}: row {bad[0]} holds NaN or infinity ({len(bad):,} of {len(array):,} rows do); "
            "expected finite numbers: remove or repair those rows"
        )


def pack(bits: ArrayLike) -> Codes:
    """Pack bits into codes.

    Args:
        bits: (rows, n_bits) or (n_bits,); every non-zero element is a bit of 1.

    Returns:
        (rows, n_bits / 8) or (n_bits / 8,) uint8.

    Raises:
        DtypeError: the elements are not numbers.
        ShapeError: there are neither one nor two dimensions.
        InputError: the number of columns is not a length that codes can have.

    Example:
        >>> pack([[1, 0, 0, 0, 0, 0, 0, 1]])
        array([[129]], dtype=uint8)
    """
    array = as_array(bits, name="bits")
    if array.dtype.kind not in "fiub":
        raise DtypeError(f"bits have dtype {array.dtype}; expected numbers")
    if array.ndim not in (1, 2):
        raise ShapeError(f"bits have {array.ndim} dimensions; expected (n_bits,) or (rows, n_bits)")
    check_n_bits(array.shape[-1])
    # The order of bytes follows that of the bits, where it is Fortran's.
    return np.ascontiguousarray(np.packbits(array != 0, axis=-1, bitorder="little"))


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Return the bits of packed codes as 0 and 1, (rows, n_bits).

    Raises:
        ShapeError: a row does not hold `n_bits` bits.
        DtypeError: codes are not uint8.

    Example:
        >>> unpack(pack([1, 1, 0, 0, 0, 0, 0, 1]), 8)
        array([[1, 1, 0, 0, 0, 0, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(check_codes(codes, check_n_bits(n_bits)), axis=1, bitorder="little")


def from_logits(logits: ArrayLike) -> Codes:
    """Return the packed codes of real logits, (rows, n_bits / 8): a bit is 1 where its logit is above 0.

    Raises:
        DtypeError: the logits are no array of numbers, but a tensor with a gradient.
        ShapeError: the logits are not (rows, n_bits).
        NotFiniteError: a logit is NaN or infinite.

    Example:
        >>> from_logits([[0.7, -1.2, 3.0, -0.1, -2.0, -0.3, -0.9, -4.0]])
        array([[5]], dtype=uint8)
    """
    return pack(check_vectors(logits, name="logits") > 0)


def unit_rows(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return embeddings of logits, or other rows, scaled to unit length. A row of zeros stays one."""
    scaled: NDArray[np.float32] = logits / np.maximum(np.linalg.norm(logits, axis=1, keepdims=True), _SHORTEST)
    return scaled


def distances(queries: ArrayLike, codes: ArrayLike, n_bits: int) -> NDArray[np.uint16]:
    """Return the Hamming distance of every query to every code, (queries, codes).

    Raises:
        ShapeError: a row does not hold `n_bits` bits.
        DtypeError: codes are not uint8.

    Example:
        >>> import numpy as np
        >>> distances(np.array([[7]], np.uint8), np.array([[7], [6], [0]], np.uint8), 8)
        array([[0, 1, 3]], dtype=uint16)
    """
    left = _words(check_codes(queries, check_n_bits(n_bits), name="queries"))
    right = _words(check_codes(codes, n_bits))
    result = np.empty((len(left), len(right)), dtype=np.uint16)
    block = max(1, _CELLS_AT_A_TIME // max(1, len(right)))
    for start in range(0, len(left), block):
        rows = result[start : start + block]
        rows[...] = 0
        for word in range(left.shape[1]):
            rows += np.bitwise_count(left[start : start + block, word, None] ^ right[None, :, word])
    return result


def _words(codes: Codes) -> NDArray[np.unsignedinteger[Any]]:
    """Return the same rows in the widest words that fill them exactly."""
    for word in (np.uint64, np.uint32, np.uint16):
        if codes.shape[1] % np.dtype(word).itemsize == 0:
            return codes.view(word)
    return codes


def substring_bounds(n_bits: int, substrings: int) -> list[tuple[int, int]]:
    """Return the first and past-the-last bit of each of `substrings` contiguous pieces of a code, longer ones first.

    Learning and search both split codes by this function, so that search looks up the pieces that were trained.

    Raises:
        DtypeError: a number is not an integer.
        InputError: `n_bits` is below 1, or `substrings` is not from 1 to `n_bits`.
    """
    n_bits = check_integer(n_bits, name="n_bits")
    substrings = check_integer(substrings, name="substrings", most=n_bits, note="n_bits at most")
    length, longer = divmod(n_bits, substrings)
    bounds = []
    start = 0
    for index in range(substrings):
        stop = start + length + (index < longer)
        bounds.append((start, stop))
        start = stop
    return bounds


def __dir__() -> list[str]:
    return __all__
