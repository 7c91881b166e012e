"""Measures of codes: tie-aware MAP@k, recall@k, precision and recall by radius, balance and correlation of bits.

The argument `relevant` is always either a boolean (queries, database) matrix or a `Relevance`. A `Relevance` gives a
few rows of that matrix on demand (see `by_label`), so that the whole matrix is never in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_codes, check_n_bits, distances, unpack
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.evaluation.expected_precision import SumTables, expected_precision

Ties = Literal["expected", "database_order"]

# Cells (query, row) computed at a time: the working memory stays near 100 MB.
_CELLS_AT_A_TIME = 2_000_000

# Rows whose bits are unpacked at a time. At most 2^24: up to there float32 counts exactly.
_ROWS_AT_A_TIME = 1 << 14


@runtime_checkable
class Relevance(Protocol):
    """The relevance of database rows to queries, given for a few queries at a time."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and of database rows."""
        ...

    def rows(self, start: int, stop: int, /) -> NDArray[np.bool_]:
        """Return the relevance to queries `start` to `stop - 1`, (stop - start, database)."""
        ...


@dataclass(frozen=True, eq=False)
class RadiusCurve:
    """Precision and recall at every radius: entry r of each array counts distances of at most r."""

    precision: NDArray[np.float64]
    """Relevant hits / hits, over all queries together; 0 where there are no hits."""
    precision_per_query: NDArray[np.float64]
    """Mean of the precision of each query; a query without hits counts 0 (P@H<=r in the literature)."""
    recall: NDArray[np.float64]
    """Relevant hits / relevant rows, over all queries together; 0 where no row is relevant."""
    hits: NDArray[np.float64]
    """Mean number of hits per query."""


def by_label(query_labels: ArrayLike, database_labels: ArrayLike) -> Relevance:
    """Return the relevance "same label", or "at least one label in common", computed a few queries at a time.

    Args:
        query_labels: (queries,) integers or text, one label for each row; or (queries, labels) of 0 and 1.
        database_labels: the same for the database.

    Raises:
        ShapeError: the labels are not both 1-D, or not both 2-D with the same number of columns.
        DtypeError: the labels are neither integers nor text, or the two are of different kinds.
        InputError: a 2-D matrix holds other values than 0 and 1.

    Example:
        >>> by_label(["cat"], ["dog", "cat"]).rows(0, 1)
        array([[False,  True]])
    """
    queries, database = np.asarray(query_labels), np.asarray(database_labels)
    if queries.ndim != database.ndim or queries.ndim not in (1, 2):
        raise ShapeError(
            f"query_labels have {queries.ndim} dimensions and database_labels {database.ndim}; "
            "expected 1 (one label for each row) or 2 (a 0/1 column for each label), the same for both"
        )
    if queries.ndim == 1:
        return _same_label(queries, database)
    if queries.shape[1] != database.shape[1]:
        raise ShapeError(
            f"query_labels have {queries.shape[1]} columns and database_labels {database.shape[1]}; "
            "expected one column for each label, the same for both"
        )
    left, right = _zero_one(queries, "query_labels"), _zero_one(database, "database_labels")
    # A sum of non-negative terms is above 0 exactly where one of them is: no rounding matters.
    return _Rows((len(left), len(right)), lambda start, stop: left[start:stop] @ right.T > 0)


def mean_average_precision(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    relevant: ArrayLike | Relevance,
    *,
    n_bits: int,
    k: int = 1000,
    ties: Ties = "expected",
) -> float:
    """Return MAP@k: the mean over the queries of the average precision of the database ranked by Hamming distance.

    AP@k is the sum of precision@i over the ranks i <= k that hold a relevant row, divided by the number of relevant
    rows within the first k (HashNet's definition); 0 if there are none.

    Args:
        query_codes: packed codes, (queries, n_bits / 8).
        database_codes: packed codes, (database, n_bits / 8).
        relevant: boolean (queries, database) matrix, or what `by_label` returns.
        n_bits: bits of a code.
        k: how many ranks count.
        ties: "expected" takes the exact expectation over a random order of rows at equal distance.
            "database_order" ranks such rows as they stand in the database. Many published figures do so, although it
            rewards a database that happens to be sorted well.

    Raises:
        ShapeError: there are no queries or no database rows, or `relevant` has another shape than (queries, database).
        DtypeError: codes are not uint8, `relevant` is not boolean, or `k` is not an integer.
        InputError: `k` is below 1, or `ties` is neither of the two.

    Example:
        The nearest of three codes is relevant to the query:

        >>> import numpy as np
        >>> query, database = np.array([[0]], np.uint8), np.array([[0], [1], [3]], np.uint8)
        >>> mean_average_precision(query, database, by_label([7], [7, 5, 5]), n_bits=8)
        1.0
    """
    return float(average_precision(query_codes, database_codes, relevant, n_bits=n_bits, k=k, ties=ties).mean())


def average_precision(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    relevant: ArrayLike | Relevance,
    *,
    n_bits: int,
    k: int = 1000,
    ties: Ties = "expected",
) -> NDArray[np.float64]:
    """Return AP@k of every query, (queries,). See `mean_average_precision` for arguments and errors."""
    pairs = _Pairs.check(query_codes, database_codes, relevant, n_bits)
    k = min(_check_k(k), pairs.relevance.shape[1])
    if ties not in ("expected", "database_order"):
        raise InputError(f'ties is {ties!r}; expected "expected" or "database_order"')
    result = np.empty(pairs.relevance.shape[0])
    if ties == "database_order":
        for start, stop, far, wanted in pairs.chunks():
            # Stable: rows at equal distance stay as they stand in the database.
            order = np.argsort(far, axis=1, kind="stable")[:, :k]
            result[start:stop] = _ranked_precision(np.take_along_axis(wanted, order, axis=1))
        return result
    tables = SumTables.upto(k, pairs.relevance.shape[1])
    for start, stop, items, good in pairs.histograms():
        result[start:stop] = expected_precision(items, good, k, tables)
    return result


def recall_at_k(found_ids: ArrayLike, true_ids: ArrayLike, k: int) -> float:
    """Return the share of queries whose one true neighbour is among the first `k` found.

    Args:
        found_ids: integers, (queries, k or more), the best first. -1 fills rows with fewer ids and never matches.
        true_ids: integers, (queries,).
        k: how many of the found ids count.

    Raises:
        ShapeError: there are no queries, fewer than `k` columns, or not one true id for each query.
        DtypeError: ids or `k` are not integers.
        InputError: `k` is below 1.

    Example:
        >>> recall_at_k([[4, 7], [1, 2]], true_ids=[7, 9], k=2)
        0.5
    """
    found, true = np.asarray(found_ids), np.asarray(true_ids)
    k = _check_k(k)
    for name, ids in (("found_ids", found), ("true_ids", true)):
        if ids.dtype.kind not in "iu":
            raise DtypeError(f"{name} have dtype {ids.dtype}; expected integers")
    if found.ndim != 2 or len(found) == 0:
        raise ShapeError(f"found_ids have shape {found.shape}; expected (queries, {k} or more), at least one query")
    if found.shape[1] < k:
        raise ShapeError(
            f"found_ids have {found.shape[1]} columns; recall at {k} needs {k}: search for more, or fill with -1"
        )
    if true.shape != (len(found),):
        raise ShapeError(
            f"true_ids have shape {true.shape}; expected ({len(found)},), one for each query: "
            "if this is a matrix of neighbours, pass its column 0"
        )
    first = found[:, :k]
    return float(((first == true[:, None]) & (first != -1)).any(axis=1).mean())


def precision_recall_by_radius(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    relevant: ArrayLike | Relevance,
    *,
    n_bits: int,
    max_radius: int | None = None,
) -> RadiusCurve:
    """Return precision, recall and number of hits at every radius from 0 to `max_radius` (`n_bits` if not given).

    Args:
        query_codes: packed codes, (queries, n_bits / 8).
        database_codes: packed codes, (database, n_bits / 8).
        relevant: boolean (queries, database) matrix, or what `by_label` returns.
        n_bits: bits of a code.
        max_radius: the last radius of the curve.

    Raises:
        ShapeError: there are no queries or no database rows, or `relevant` has another shape than (queries, database).
        DtypeError: codes are not uint8, `relevant` is not boolean, or `max_radius` is not an integer.
        InputError: `max_radius` is not from 0 to `n_bits`.

    Example:
        >>> import numpy as np
        >>> query, database = np.array([[0]], np.uint8), np.array([[1], [2]], np.uint8)
        >>> curve = precision_recall_by_radius(query, database, by_label([7], [7, 5]), n_bits=8, max_radius=1)
        >>> curve.precision.tolist(), curve.recall.tolist()
        ([0.0, 0.5], [0.0, 1.0])
    """
    pairs = _Pairs.check(query_codes, database_codes, relevant, n_bits)
    if max_radius is None:
        max_radius = n_bits
    if not isinstance(max_radius, int | np.integer) or isinstance(max_radius, bool):
        raise DtypeError(f"max_radius is {max_radius!r}; expected an integer")
    # Unlike in a search, n_bits is allowed: it is the end of the curve, where every row is a hit.
    if not 0 <= max_radius <= n_bits:
        raise InputError(f"max_radius is {max_radius}; expected 0 to n_bits ({n_bits})")

    n_queries = pairs.relevance.shape[0]
    hits = np.zeros(max_radius + 1, dtype=np.int64)
    good_hits = np.zeros(max_radius + 1, dtype=np.int64)
    precisions = np.zeros(max_radius + 1)
    n_relevant = 0
    for _, _, items, good in pairs.histograms():
        within = items[:, : max_radius + 1].cumsum(axis=1)
        good_within = good[:, : max_radius + 1].cumsum(axis=1)
        hits += within.sum(axis=0)
        good_hits += good_within.sum(axis=0)
        # Without hits there are no relevant hits either, and 0 / 1 is the wanted 0.
        precisions += (good_within / np.maximum(within, 1)).sum(axis=0)
        n_relevant += int(good.sum())
    return RadiusCurve(
        precision=good_hits / np.maximum(hits, 1),
        precision_per_query=precisions / n_queries,
        recall=good_hits / max(n_relevant, 1),
        hits=hits / n_queries,
    )


def bit_balance(codes: ArrayLike, n_bits: int) -> NDArray[np.float64]:
    """Return the share of ones of every bit, (n_bits,). A balanced bit has 0.5.

    Raises:
        ShapeError: there are no codes, or a row does not hold `n_bits` bits.
        DtypeError: codes are not uint8.
    """
    rows = 0
    ones = np.zeros(check_n_bits(n_bits), dtype=np.int64)
    for bits in _bits(codes, n_bits):
        rows += len(bits)
        ones += bits.sum(axis=0, dtype=np.int64)
    return ones / rows


def bit_correlation(codes: ArrayLike, n_bits: int) -> float:
    """Return the mean absolute Pearson correlation of two different bits: 0 if independent, 1 if all are the same.

    A constant bit has no correlation. It carries no information, so it counts as correlation 1 with every other bit:
    codes that have collapsed must not look independent.

    Raises:
        ShapeError: there are no codes, or a row does not hold `n_bits` bits.
        DtypeError: codes are not uint8.
    """
    rows = 0
    both = np.zeros((check_n_bits(n_bits), n_bits), dtype=np.int64)
    for bits in _bits(codes, n_bits):
        rows += len(bits)
        real = bits.astype(np.float32)
        both += (real.T @ real).astype(np.int64)
    ones = both.diagonal()
    # Multiplied by rows^2, all values are integers: exact, and a constant bit has a spread of exactly 0.
    covariance = rows * both - np.outer(ones, ones)
    spread = (rows * ones - ones * ones).astype(np.float64)
    scale = np.sqrt(np.outer(spread, spread))
    correlation = np.where(scale > 0, np.abs(covariance) / np.where(scale > 0, scale, 1), 1.0)
    return float(correlation[~np.eye(n_bits, dtype=bool)].mean())


@dataclass(frozen=True, eq=False)
class _Rows:
    """A `Relevance` made of a function."""

    shape: tuple[int, int]
    rows: Callable[[int, int], NDArray[np.bool_]]


def _same_label(queries: NDArray[np.generic], database: NDArray[np.generic]) -> Relevance:
    for name, labels in (("query_labels", queries), ("database_labels", database)):
        if labels.dtype.kind not in "biuU":
            raise DtypeError(f"{name} have dtype {labels.dtype}; expected integers or text")
    # int64 with uint64 would be joined as float64, which takes different large labels for equal ones.
    if (queries.dtype.kind == "U") != (database.dtype.kind == "U") or np.result_type(queries, database).kind == "f":
        raise DtypeError(
            f"query_labels have dtype {queries.dtype} and database_labels {database.dtype}; "
            "expected the same kind: convert one to the other's dtype"
        )
    # Text is compared once, here, instead of once for every pair.
    _, numbers = np.unique(np.concatenate([queries, database]), return_inverse=True)
    left, right = numbers[: len(queries)], numbers[len(queries) :]
    return _Rows((len(left), len(right)), lambda start, stop: left[start:stop, None] == right)


def _zero_one(labels: NDArray[np.generic], name: str) -> NDArray[np.float32]:
    if labels.dtype.kind not in "biuf":
        raise DtypeError(f"{name} have dtype {labels.dtype}; expected 0 and 1, a column for each label")
    other = labels[(labels != 0) & (labels != 1)]
    if other.size:
        raise InputError(
            f"{name} hold {other[0]} in a 2-D array; expected only 0 and 1, a column for each label: "
            "pass one label for each row as a 1-D array"
        )
    return labels.astype(np.float32)


def _check_k(k: int) -> int:
    if not isinstance(k, int | np.integer) or isinstance(k, bool):
        raise DtypeError(f"k is {k!r}; expected an integer")
    if k < 1:
        raise InputError(f"k is {k}; expected 1 or more, the number of ranks that count")
    return int(k)


def _check_relevant(relevant: ArrayLike | Relevance, shape: tuple[int, int]) -> Relevance:
    if not isinstance(relevant, Relevance):
        matrix = np.asarray(relevant)
        if matrix.dtype != np.bool_:
            raise DtypeError(
                f"relevant has dtype {matrix.dtype}; expected a boolean (queries, database) matrix "
                "(for labels, see hamtarget.evaluation.by_label)"
            )
        if matrix.ndim != 2:
            raise ShapeError(f"relevant has {matrix.ndim} dimensions; expected 2: (queries, database)")
        relevant = _Rows((matrix.shape[0], matrix.shape[1]), lambda start, stop: matrix[start:stop])
    if tuple(relevant.shape) != shape:
        raise ShapeError(
            f"relevant has shape {tuple(relevant.shape)}; expected {shape}: a row for each query, "
            "a column for each database row"
        )
    return relevant


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Checked codes of queries and database, compared a few queries at a time."""

    queries: Codes
    database: Codes
    relevance: Relevance
    n_bits: int

    @classmethod
    def check(
        cls, query_codes: ArrayLike, database_codes: ArrayLike, relevant: ArrayLike | Relevance, n_bits: int
    ) -> _Pairs:
        n_bits = check_n_bits(n_bits)
        queries = check_codes(query_codes, n_bits, name="query_codes")
        database = check_codes(database_codes, n_bits, name="database_codes")
        for name, codes in (("query_codes", queries), ("database_codes", database)):
            if len(codes) == 0:
                raise ShapeError(f"{name} have 0 rows; expected at least one")
        return cls(queries, database, _check_relevant(relevant, (len(queries), len(database))), n_bits)

    def chunks(self) -> Iterator[tuple[int, int, NDArray[np.uint16], NDArray[np.bool_]]]:
        """Yield the first and past-the-last query, their distances to the database, and their relevance."""
        size = max(1, _CELLS_AT_A_TIME // len(self.database))
        for start in range(0, len(self.queries), size):
            stop = min(start + size, len(self.queries))
            wanted = np.asarray(self.relevance.rows(start, stop))
            # A Relevance of the caller's own making is input too.
            if wanted.dtype != np.bool_:
                raise DtypeError(f"relevant.rows({start}, {stop}) have dtype {wanted.dtype}; expected bool")
            if wanted.shape != (stop - start, len(self.database)):
                raise ShapeError(
                    f"relevant.rows({start}, {stop}) have shape {wanted.shape}; "
                    f"expected {(stop - start, len(self.database))}"
                )
            yield start, stop, distances(self.queries[start:stop], self.database, self.n_bits), wanted

    def histograms(self) -> Iterator[tuple[int, int, NDArray[np.intp], NDArray[np.intp]]]:
        """Yield the first and past-the-last query, and their numbers of rows and of relevant rows at each distance."""
        bins = self.n_bits + 1
        for start, stop, far, wanted in self.chunks():
            # One bin for each (query, distance, relevant or not): one pass counts everything.
            key = far + (np.arange(stop - start) * bins)[:, None]
            key *= 2
            key += wanted
            counts = np.bincount(key.ravel(), minlength=(stop - start) * bins * 2).reshape(-1, bins, 2)
            yield start, stop, counts.sum(axis=2), counts[:, :, 1]


def _ranked_precision(good: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return AP of rankings given as rows of "relevant or not", the best rank first."""
    so_far = good.cumsum(axis=1)
    precision = so_far / np.arange(1, good.shape[1] + 1)
    return np.asarray((precision * good).sum(axis=1) / np.maximum(so_far[:, -1], 1))


def _bits(codes: ArrayLike, n_bits: int) -> Iterator[NDArray[np.uint8]]:
    packed = check_codes(codes, n_bits)
    if len(packed) == 0:
        raise ShapeError("codes have 0 rows; expected at least one")
    for start in range(0, len(packed), _ROWS_AT_A_TIME):
        yield unpack(packed[start : start + _ROWS_AT_A_TIME], n_bits)
