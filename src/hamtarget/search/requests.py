"""Requests: what is asked, what is wanted and what it may cost, checked and in the order of the native core."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import as_array, check_ids, check_integer, shown
from hamtarget._core import _native
from hamtarget.codes import Codes, check_codes, check_radius, check_vectors
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.query import Asked, Query, Work
from hamtarget.search.distinct import distinct
from hamtarget.search.embeddings import Embeddings

# More rows than any index has: as good as no limit, and within the range of the core's numbers.
_HUGE = 2**62
_MAX_THREADS = 1024


class Request(NamedTuple):
    """A search that has been checked. The first fields are the native core's arguments, in its order.

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
        threads: that share the queries.
        costs: True if costs are counted.
        offsets: where codes are matched, (queries + 1,): codes from `offsets[q]` on are those of query q.
        at_least: fewest codes of a query that must match.
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
    threads: int = 1
    costs: bool = False
    offsets: NDArray[np.int64] | None = None
    at_least: int = 1

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

    def for_core(self) -> _native.Search:
        """Return the request as the native core takes it."""
        arguments: tuple[Any, ...] = self[:_N_CORE_ARGUMENTS]
        return _native.Search(*arguments)

    @property
    def of_codes(self) -> Request:
        """The request for all codes that the codes of a match find."""
        return self._replace(limit=None, offsets=None)


# How many fields of a request the native core takes.
_N_CORE_ARGUMENTS = Request._fields.index("limits") + 1


@dataclass(frozen=True, slots=True)
class CodeKind:
    """The kind of codes in an index or a store, which decides what can be asked of them.

    Attributes:
        n_bits: bits of a code.
        embeddings: kind of the embeddings that are kept with the codes, if any.
    """

    n_bits: int
    embeddings: Embeddings | None

    def request(self, asked: Asked, query: Query, work: Work, *, filter: Any = None) -> Request:
        """Check a query, and return it as a request.

        Args:
            asked: the queries, a row each.
            query: what is wanted; its filter is left out of account.
            work: what it may cost.
            filter: ids, or a mask.

        Raises:
            InputError, and its kinds: a number is out of range, or an array is not what it should be.
        """
        budget, logits = 0, None
        if query.budget is not None:
            budget = min(check_integer(query.budget, name="budget"), _HUGE)
            if asked.logits is None:
                raise InputError(
                    "budget is given with codes alone; logits say which rows are likely: pass Asked(logits=...)"
                )
            logits = check_vectors(asked.logits, name="logits", n_columns=self.n_bits)
        codes = self._codes(asked, logits)
        if query.recall is not None:
            raise InputError("recall is given with codes; it is for vectors, in a store that keeps them")
        ids, mask = (None, None) if filter is None else _check_filter(filter)
        rerank, embedding = 0, None
        if query.rerank is not None or query.comparisons is not None or asked.embeddings is not None:
            self._check_choices(query)
            rerank, embedding = self._ranking(query, asked, len(codes))
        offsets = None if asked.offsets is None else _check_offsets(asked.offsets, len(codes))
        if query.at_least != 1 and offsets is None:
            raise InputError("at_least is given with single codes; it is for queries of several codes: call match")
        return Request(
            codes,
            self.n_bits if query.radius is None else check_radius(query.radius, self.n_bits),
            None if query.limit is None else min(check_integer(query.limit, name="limit"), _HUGE),
            ids,
            mask,
            rerank,
            embedding,
            logits,
            budget,
            None if query.comparisons is None else min(check_integer(query.comparisons, name="comparisons"), _HUGE),
            work.limits,
            min(work.n_threads(1), _MAX_THREADS),
            work.costs,
            offsets,
            1 if offsets is None else _check_at_least(query.at_least, offsets),
        )

    def _codes(self, asked: Asked, logits: NDArray[np.float32] | None) -> Codes:
        if asked.codes is not None:
            return check_codes(asked.codes, self.n_bits)
        if logits is None:
            logits = check_vectors(asked.logits, name="logits", n_columns=self.n_bits)  # type: ignore[arg-type]
        return np.packbits(logits > 0, axis=1, bitorder="little")

    def _check_choices(self, query: Query) -> None:
        """Check that what a query wants goes together."""
        if query.comparisons is not None:
            if query.budget is None or query.rerank is None:
                raise InputError(
                    "comparisons is given without budget or rerank; it says of how many rows that a budget finds "
                    "embeddings are compared"
                )
            if self.embeddings is None:
                raise InputError(
                    "comparisons is given; no embeddings are kept here that could be compared: leave it out"
                )
            if query.limit is not None:
                raise InputError("comparisons and limit are given; both choose rows to be re-ranked: pass one of them")
        by_logits = query.rerank is not None and self.embeddings is None
        if by_logits and query.budget is not None and query.limit is not None:
            raise InputError("rerank and limit are given; without embeddings both choose hits: pass one of them")

    def _ranking(self, query: Query, asked: Asked, n_queries: int) -> tuple[int, NDArray[np.uint8] | None]:
        """Return how many hits are re-ranked, 0 for none, and the bytes of the queries' embeddings."""
        if query.rerank is None:
            if asked.embeddings is not None:
                raise InputError("embeddings are given without rerank; pass rerank=l for the closest l hits")
            return 0, None
        rerank = min(check_integer(query.rerank, name="rerank"), _HUGE)
        if self.embeddings is None:
            if query.budget is None:
                raise InputError(
                    "rerank is given; no embeddings are kept here: create the index or store with embeddings=..."
                )
            if asked.embeddings is not None:
                raise InputError("embeddings are given; none are kept here: without them, logits rank the hits")
            return rerank, None
        if asked.embeddings is None:
            raise InputError("rerank is given without an embedding; pass the query's: Asked(code, embeddings=...)")
        return rerank, self.embeddings.check_queries(asked.embeddings, n_rows=n_queries).view(np.uint8)


def _check_filter(filter: Any) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """Return the ids, ascending, or the mask that a filter of an index is."""
    if type(filter) is not np.ndarray and isinstance(filter, Mapping):
        raise DtypeError(
            f"filter is {shown(filter)}; expected ids (a set, list or array), or a boolean array with an element for "
            "each id from 0 on: payloads and their fields are in a Store"
        )
    is_set = type(filter) is not np.ndarray and isinstance(filter, Set)
    array = as_array(list(filter) if is_set else filter, name="filter")
    if array.dtype == np.bool_:
        if array.ndim != 1:
            raise ShapeError(f"filter has {array.ndim} dimensions; expected 1: an element for each id from 0 on")
        return None, np.ascontiguousarray(array)
    return distinct(check_ids(array, name="filter")), None


def _check_offsets(offsets: ArrayLike, n_codes: int) -> NDArray[np.int64]:
    checked = check_ids(offsets, name="offsets")
    if not len(checked) or checked[0] != 0 or checked[-1] != n_codes or bool((np.diff(checked) < 0).any()):
        raise InputError(f"offsets do not divide {n_codes:,} codes; expected them to rise from 0 to {n_codes:,}")
    return checked


def _check_at_least(at_least: int, offsets: NDArray[np.int64]) -> int:
    checked = check_integer(at_least, name="at_least")
    fewest = min(np.diff(offsets).tolist(), default=checked)
    if checked > fewest:
        raise InputError(
            f"at_least is {checked}, and the query has {fewest} codes, of which no more can match; ask for fewer"
        )
    return checked
