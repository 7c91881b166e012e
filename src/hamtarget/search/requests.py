"""Requests: the arguments of every search, checked once, for indexes and stores alike."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_codes, check_radius, check_vectors
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.search.core import _native
from hamtarget.search.distinct import distinct
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.limits import Limits, check_limits

# More rows than any index has: as good as no limit, and within the range of the core's numbers.
_HUGE = 2**62

_new = tuple.__new__


class Request(NamedTuple):
    """A search that has been checked, in the order of the native core's arguments.

    Attributes:
        codes: of the queries, (queries, n_bits / 8).
        radius: largest distance of a hit; n_bits where the nearest are wanted.
        limit: most hits for each query.
        ids: the only ids that may be hits, ascending.
        mask: element i says if id i may be a hit.
        rerank: so many of the hits, by embedding; 0 where hits are not re-ranked.
        embedding: bytes of the queries' embeddings.
        logits: of the queries, (queries, n_bits), where buckets are probed.
        budget: most rows read for each query of a probe.
        comparisons: most embeddings compared for each query of a probe.
        limits: bounds on the work of all queries together.
    """

    codes: Codes
    radius: int
    limit: int | None = None
    ids: NDArray[np.int64] | None = None
    mask: NDArray[np.bool_] | None = None
    rerank: int = 0
    embedding: NDArray[np.uint8] | None = None
    logits: NDArray[np.float32] | None = None
    budget: int = 0
    comparisons: int | None = None
    limits: _native.Limits | None = None

    def part(self, start: int, stop: int) -> Request:
        """Return the same request for some of the queries, from `start` to before `stop`."""
        here = slice(start, stop)
        return self._replace(
            codes=self.codes[here],
            embedding=None if self.embedding is None else self.embedding[here],
            logits=None if self.logits is None else self.logits[here],
        )

    @property
    def is_nearest(self) -> bool:
        """True if the nearest rows are wanted, at any distance."""
        return bool(self.radius == 8 * self.codes.shape[1])


class Requests:
    """Requests for codes of one kind, made from what a caller says.

    The methods take arrays of queries, one row each: `one_code`, `many_codes` and their likes make them.
    """

    def __init__(self, n_bits: int, radius: int | None, embeddings: Embeddings | None) -> None:
        """Remember what the codes of an index or a store are.

        Args:
            n_bits: bits of a code.
            radius: that of searches that do not name one; None if they must.
            embeddings: kind of the embeddings that are kept with the codes, if any.
        """
        self.n_bits = n_bits
        self.radius = radius
        self.embeddings = embeddings

    def search(
        self,
        codes: Codes,
        radius: int | None,
        *,
        limit: int | None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None,
        embedding: ArrayLike | None,
        limits: Limits | None = None,
    ) -> Request:
        """Return the request for all rows within a radius."""
        within = self.radius if radius is None else check_radius(radius, self.n_bits)
        if within is None:
            raise _radius_is_missing()
        if limit is not None:
            limit = min(check_count(limit, name="limit"), _HUGE)
        if limits is not None:
            check_limits(limits)
        if filter is None and rerank is None and embedding is None:
            # A search for one code takes a few microseconds: calling Request would take a tenth of it.
            return _new(Request, (codes, within, limit, None, None, 0, None, None, 0, None, limits))
        ids, mask = _check_filter(filter)
        n_first, vectors = self._ranking(rerank, embedding, len(codes))
        return Request(codes, within, limit, ids, mask, n_first, vectors, limits=limits)

    def nearest(
        self,
        codes: Codes,
        k: int,
        *,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None,
        embedding: ArrayLike | None,
        limits: Limits | None = None,
    ) -> Request:
        """Return the request for the `k` nearest rows."""
        ids, mask = _check_filter(filter)
        limit = min(check_count(k, name="k"), _HUGE)
        n_first, vectors = self._ranking(rerank, embedding, len(codes))
        if limits is not None:
            check_limits(limits)
        return Request(codes, self.n_bits, limit, ids, mask, n_first, vectors, limits=limits)

    def probe(
        self,
        logits: NDArray[np.float32],
        budget: int,
        *,
        radius: int | None,
        limit: int | None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None,
        embedding: ArrayLike | None,
        comparisons: int | None,
        limits: Limits | None = None,
    ) -> Request:
        """Return the request for the rows that a budget finds."""
        within = self.radius if radius is None else check_radius(radius, self.n_bits)
        if within is None:
            raise _radius_is_missing()
        if limit is not None:
            limit = min(check_count(limit, name="limit"), _HUGE)
        if comparisons is not None:
            comparisons = min(check_count(comparisons, name="comparisons"), _HUGE)
            if rerank is None:
                raise InputError(
                    "comparisons is given without rerank; it says of how many rows embeddings are compared"
                )
            if self.embeddings is None:
                raise InputError(
                    "comparisons is given; no embeddings are kept here that could be compared: leave it out"
                )
            if limit is not None:
                raise InputError("comparisons and limit are given; both choose rows to be re-ranked: pass one of them")
        if rerank is not None and limit is not None and self.embeddings is None:
            raise InputError("rerank and limit are given; without embeddings both choose hits: pass one of them")
        ids, mask = _check_filter(filter)
        n_first, vectors = self._ranking(rerank, embedding, len(logits), by_logits=True)
        if limits is not None:
            check_limits(limits)
        return Request(
            np.packbits(logits > 0, axis=1, bitorder="little"),
            within,
            limit,
            ids,
            mask,
            n_first,
            vectors,
            np.ascontiguousarray(logits),
            min(check_count(budget, name="budget"), _HUGE),
            comparisons,
            limits,
        )

    def _ranking(
        self, rerank: int | None, embedding: ArrayLike | None, n_queries: int, *, by_logits: bool = False
    ) -> tuple[int, NDArray[np.uint8] | None]:
        """Return how many hits are re-ranked, 0 for none, and the bytes of the queries' embeddings."""
        if rerank is None:
            if embedding is not None:
                raise InputError("embedding is given without rerank; pass rerank=l for the closest l hits")
            return 0, None
        rerank = min(check_count(rerank, name="rerank"), _HUGE)
        if self.embeddings is None:
            if not by_logits:
                raise InputError(
                    "rerank is given; no embeddings are kept here: create the index or store with embeddings=..."
                )
            if embedding is not None:
                raise InputError("embedding is given; no embeddings are kept here: without them, logits rank the hits")
            return rerank, None
        if embedding is None:
            raise InputError("rerank is given without embedding; pass that of the query")
        return rerank, self.embeddings.check_queries(embedding, n_rows=n_queries).view(np.uint8)


def one_code(code: ArrayLike, n_bits: int, *, instead: str) -> Codes:
    """Return one code, (n_bits / 8,), as a batch of one; `instead` is the call for several.

    Raises:
        DtypeError: the elements are not uint8.
        ShapeError: it is not one code of `n_bits` bits.
    """
    array = np.asarray(code)
    if array.ndim != 1:
        raise ShapeError(
            f"code has shape {array.shape}; expected one code, ({n_bits // 8},): for several, call {instead}"
        )
    return check_codes(array, n_bits, name="codes")


def many_codes(codes: ArrayLike, n_bits: int, *, instead: str) -> Codes:
    """Return a batch of codes, (queries, n_bits / 8), as a contiguous array; `instead` is the call for one.

    Raises:
        DtypeError: the elements are not uint8.
        ShapeError: they are not codes of `n_bits` bits.
    """
    array = np.asarray(codes)
    if array.ndim != 2:
        raise ShapeError(
            f"codes have shape {array.shape}; expected (queries, {n_bits // 8}): for one code, call {instead}"
        )
    return check_codes(array, n_bits)


def one_row_of_logits(logits: ArrayLike, n_bits: int) -> NDArray[np.float32]:
    """Return the logits of one query, (n_bits,), as a batch of one.

    Raises:
        DtypeError, ShapeError, NotFiniteError: they are not finite numbers, one for each bit.
    """
    array = np.asarray(logits)
    if array.ndim != 1:
        raise ShapeError(
            f"logits have shape {array.shape}; expected those of one query, ({n_bits},): for several, call probe_batch"
        )
    return check_vectors(array[None], name="logits", n_columns=n_bits)


def many_rows_of_logits(logits: ArrayLike, n_bits: int) -> NDArray[np.float32]:
    """Return the logits of a batch of queries, (queries, n_bits).

    Raises:
        DtypeError, ShapeError, NotFiniteError: they are not finite numbers, one for each bit.
    """
    array = np.asarray(logits)
    if array.ndim != 2:
        raise ShapeError(f"logits have shape {array.shape}; expected (queries, {n_bits}): for one query, call probe")
    return check_vectors(array, name="logits", n_columns=n_bits)


def one_embedding(embedding: ArrayLike | None) -> NDArray[Any] | None:
    """Return the embedding of one query, (n_dims,), as a batch of one.

    Raises:
        ShapeError: it is not one.
    """
    if embedding is None:
        return None
    array = np.asarray(embedding)
    if array.ndim != 1:
        raise ShapeError(f"embedding has shape {array.shape}; expected that of one query, (n_dims,)")
    return array[None]


def check_count(count: int, *, name: str) -> int:
    """Return `count` if it is a whole number of at least 1.

    Raises:
        DtypeError: it is not an integer.
        InputError: it is less.
    """
    if not isinstance(count, int | np.integer) or isinstance(count, bool):
        raise DtypeError(f"{name} is {count!r}; expected an integer")
    if count < 1:
        raise InputError(f"{name} is {count}; expected at least 1")
    return int(count)


def check_ids(ids: ArrayLike, *, name: str = "ids") -> NDArray[np.int64]:
    """Return `ids` as a contiguous array of int64.

    Raises:
        DtypeError: they are not integers that int64 holds.
        ShapeError: they are not (rows,).
    """
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise ShapeError(f"{name} are not an array ({error}); expected (rows,)") from error
    # An empty list has no integers to tell its type by; numpy calls it float64.
    if array.size and (array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64)):
        hint = "" if array.dtype.kind not in "US" else ": number the rows, or use a Store, whose ids may be texts"
        raise DtypeError(f"{name} have dtype {array.dtype}; expected int64{hint}")
    if array.ndim != 1:
        raise ShapeError(f"{name} have {array.ndim} dimensions; expected 1: (rows,)")
    return np.ascontiguousarray(array, dtype=np.int64)


def _check_filter(filter: ArrayLike | Set[int] | None) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """Return the ids, ascending, or the mask that a filter is."""
    if filter is None:
        return None, None
    array = np.asarray(list(filter) if isinstance(filter, Set) else filter)
    if array.dtype == np.bool_:
        if array.ndim != 1:
            raise ShapeError(f"filter has {array.ndim} dimensions; expected 1: an element for each id from 0 on")
        return None, np.ascontiguousarray(array)
    return distinct(check_ids(array, name="filter")), None


def _radius_is_missing() -> InputError:
    return InputError("radius is missing; a FlatIndex has none of its own: pass one")
