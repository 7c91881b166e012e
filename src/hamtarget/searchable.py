"""The verbs of everything that can be searched, written once: search, nearest and match, for one query and for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import as_array, check_integer
from hamtarget.answer import Answer, Hits
from hamtarget.codes import check_radius
from hamtarget.errors import InputError, ShapeError
from hamtarget.items import MAX_CODES, Match
from hamtarget.query import Asked, Query, Work, check_question, check_work

__all__ = ["Searchable"]


class Searchable(ABC):
    """The verbs of an index, which takes codes, and of a store, which takes inputs or codes.

    A subclass says how to `answer` a batch. It may say how to answer one query faster (`answer_one`, `answer_code`).

    Attributes:
        n_bits: bits of a code.
        radius: of searches that do not name one; None if they must.
    """

    n_bits: int
    radius: int | None

    @abstractmethod
    def answer(self, asked: Asked, query: Query, work: Work | None = None) -> Answer:
        """Answer a batch of queries: all verbs come here, and so may a caller with a whole `Query`.

        Args:
            asked: codes, logits and embeddings of the queries, a row each.
            query: what is wanted; without a radius, the nearest.
            work: what the answer may cost.

        Raises:
            As `search`.
        """

    @abstractmethod
    def _asked(self, query: Any, code: ArrayLike | None, wanted: Query, *, many: bool) -> Asked:
        """Return what is asked with, for one query or for many, from an input or a code."""

    def answer_one(self, asked: Asked, query: Query, work: Work) -> Hits:
        """Answer one query, given as a batch of one."""
        return self.answer(asked, query, work)[0]

    def answer_code(
        self,
        query: Any,
        code: ArrayLike | None,
        radius: int | None,
        limit: int | None,
        is_nearest: bool,
        mask: NDArray[Any] | None,
    ) -> Hits | None:
        """Answer a query for one code as fast as can be; None if it must be looked at more closely.

        A search takes about a microsecond: the objects of the usual way would take several times as long.
        """
        return None

    def search(
        self,
        query: Any = None,
        radius: int | None = None,
        *,
        code: ArrayLike | None = None,
        limit: int | None = None,
        filter: Any = None,
        rerank: int | None = None,
        budget: int | None = None,
        work: Work | None = None,
    ) -> Hits:
        """Find everything within `radius` bits of a query, nearest first.

        With a `budget` the search is approximate: it reads at most that many rows, the most likely first. Buckets of
        all tables are read in the order of the sum of |logit| over the bits in which they differ from the query's
        code. A larger budget finds all that a smaller one finds. A budget of all rows finds exactly what the search
        without it does. With a large radius, up to n_bits - 1, everything that is read is a hit: together with
        `rerank`, this is approximate search for nearest neighbours. Sums of |logit| are rounded to 63 steps up to the
        query's largest (15 for codes of more than 1,024 bits).

        Example:
            >>> from hamtarget import MultiIndex
            >>> index = MultiIndex(64, radius=2)
            >>> index.add([10, 11], np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            >>> index.search(np.zeros(8, dtype=np.uint8))
            Hits(1 hit: Hit(id=10, distance=0))
            >>> index.search(np.zeros(8, dtype=np.uint8), radius=3, limit=1, work=Work(costs=True)).cost.candidates
            2

        Args:
            query: for an index a code, (n_bits / 8,) of packed uint8; for a store an input that its encoder takes; for
                both an `Asked`, which may have logits and embeddings. For several queries see `search_batch`.
            radius: from 0 to n_bits - 1; a hit may be at exactly this distance. The index's or store's own by default.
            code: a code instead of `query`.
            limit: most hits; all of them by default.
            filter: what may be a hit. For an index, ids (a set, list or array) or a boolean array whose element i says
                if id i may be one; for a store, the value or the `Range` of values of each named field of the payload.
            rerank: number of hits to keep (after `limit`), the closest by embedding, by embedding distance and then id.
                A search with a budget where no embeddings are kept ranks by the logits: by the sum of |logit| over
                the bits in which a row differs, which `embedding_distance` then is.
            budget: most rows read; an empty bucket counts as one row, and so does a row that the filter refuses. It
                needs logits: a store's encoder makes them, an index takes them in an `Asked`.
            work: bounds, and whether to count the cost.

        Returns:
            The hits, by distance and then id. In a store, those at one distance are in the order of integer ids, then
            in that in which they were first stored. An item with several codes is found once, by its nearest code, and
            comes after those with one; if hits are re-ranked, `limit` counts codes.

        Raises:
            InputError, and its kinds: a number is out of range, or an array is not what it should be.
            LimitError: the work reached one of its bounds.
        """
        if rerank is None and budget is None and work is None and (filter is None or type(filter) is np.ndarray):
            found = self.answer_code(query, code, radius, limit, False, filter)
            if found is not None:
                return found
        wanted = Query(self._within(radius, budget), limit, None, budget, None, filter, rerank)
        return self.answer_one(self._one_asked(query, code, wanted, "search_batch"), wanted, check_work(work))

    def search_batch(
        self,
        queries: Any = None,
        radius: int | None = None,
        *,
        codes: ArrayLike | None = None,
        limit: int | None = None,
        filter: Any = None,
        rerank: int | None = None,
        budget: int | None = None,
        work: Work | None = None,
    ) -> Answer:
        """Find everything within `radius` bits of each of a batch of queries; see `search`.

        Args:
            queries: a batch of what `search` takes: codes of shape (queries, n_bits / 8), inputs, or an `Asked`.
            radius: as in `search`.
            codes: codes instead of `queries`.
            limit: most hits of each query.
            filter: as in `search`.
            rerank: as in `search`, for each query.
            budget: as in `search`, for each query.
            work: bounds on the work of all queries together, the threads that share it, whether to count costs.

        Raises:
            As `search`.
        """
        wanted = Query(self._within(radius, budget), limit, None, budget, None, filter, rerank)
        return self.answer(self._many_asked(queries, codes, wanted, "search"), wanted, check_work(work))

    def nearest(
        self,
        query: Any = None,
        k: int = 10,
        *,
        code: ArrayLike | None = None,
        recall: float | None = None,
        filter: Any = None,
        rerank: int | None = None,
        budget: int | None = None,
        work: Work | None = None,
    ) -> Hits:
        """Find the `k` nearest, by distance and then id; all where there are fewer.

        The nearest codes are found exactly, unless there is a `budget`. In a store that keeps vectors, a query that is
        a vector finds the nearest vectors, as many of the true ones as `recall` says: by settings that were measured
        on the store's own rows (`Store.tune`), or by comparing all vectors where that is faster, where there is a
        filter, and for a recall of 1. A store that is not tuned yet is not tuned within bounds: all are compared.

        Example:
            >>> from hamtarget import FlatIndex
            >>> index = FlatIndex(64)
            >>> index.add([10, 11], np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            >>> [(hit.id, hit.distance) for hit in index.nearest(np.zeros(8, dtype=np.uint8), 2)]
            [(10, 0), (11, 3)]

        Args:
            query: as in `search`.
            k: number of hits, at least 1.
            code: a code instead of `query`.
            recall: in a store that keeps vectors, share of the true nearest to find, above 0 and up to 1; 0.95 by
                default.
            filter: as in `search`.
            rerank: number of the `k` to keep, the closest by embedding.
            budget: as in `search`.
            work: as in `search`.

        Raises:
            As `search`; InputError also for a vector of zeros where the metric is "cosine".
        """
        is_plain = recall is None and rerank is None and budget is None and work is None
        if is_plain and (filter is None or type(filter) is np.ndarray):
            found = self.answer_code(query, code, None, k, True, filter)
            if found is not None:
                return found
        wanted = Query(None, check_integer(k, name="k"), recall, budget, None, filter, rerank)
        return self.answer_one(self._one_asked(query, code, wanted, "nearest_batch"), wanted, check_work(work))

    def nearest_batch(
        self,
        queries: Any = None,
        k: int = 10,
        *,
        codes: ArrayLike | None = None,
        recall: float | None = None,
        filter: Any = None,
        rerank: int | None = None,
        budget: int | None = None,
        work: Work | None = None,
    ) -> Answer:
        """Find the `k` nearest of each of a batch of queries; see `nearest` and `search_batch`.

        Vectors that are encoded already may come as `Asked(logits=..., embeddings=...)`, as the store keeps them.
        """
        wanted = Query(None, check_integer(k, name="k"), recall, budget, None, filter, rerank)
        return self.answer(self._many_asked(queries, codes, wanted, "nearest"), wanted, check_work(work))

    def match(
        self,
        queries: Any = None,
        radius: int | None = None,
        *,
        codes: ArrayLike | None = None,
        at_least: int = 1,
        limit: int | None = None,
        filter: Any = None,
        work: Work | None = None,
    ) -> tuple[Match, ...]:
        """Find what matches one query of several codes, such as the frames of a video: k of n of its codes.

        A code of the query is matched by an item if at least one code of the item lies within `radius` bits of it. k
        counts these codes of the query, and n is how many it has: an item is found if k is `at_least` or more. The
        other way about, each match also says how many of the item's codes are matched, and of how many.

        Example:
            >>> from hamtarget import Store
            >>> from hamtarget.store import Item
            >>> frames = np.array([[0] * 8, [255] * 8, [15] * 8], dtype=np.uint8)
            >>> with Store.create("videos", n_bits=64, radius=2) as store:
            ...     store.put([Item("a.mp4", codes=frames), Item("b.mp4", codes=frames[1:])])
            ...     [(match.id, match.n_query_matched) for match in store.match(codes=frames, at_least=3)]
            2
            [('a.mp4', 3)]

        Args:
            queries: for an index codes, (codes, n_bits / 8); for a store inputs. All are of one query.
            radius: as in `search`.
            codes: codes instead of `queries`.
            at_least: fewest codes of the query that an item must match.
            limit: most items; all of them by default.
            filter: as in `search`.
            work: as in `search_batch`; each code that is found for a code of the query is a hit.

        Returns:
            Those with most matched codes of the query first, then those at the smallest distance of two codes, then in
            the order of `search`.

        Raises:
            As `search`; InputError also if there are more than 64 codes, none, or fewer than `at_least`.
        """
        wanted = Query(self._within(radius, None), limit, filter=filter, at_least=at_least)
        asked = self._many_asked(queries, codes, wanted, "search")
        n_codes = len(asked.logits if asked.codes is None else asked.codes)  # type: ignore[arg-type]
        return self.answer(_divided(asked, [0, n_codes]), wanted, check_work(work)).matches(0)

    def match_batch(
        self,
        queries: Any = None,
        radius: int | None = None,
        *,
        codes: Any = None,
        at_least: int = 1,
        limit: int | None = None,
        filter: Any = None,
        work: Work | None = None,
    ) -> Answer:
        """Find what matches each of a batch of queries of several codes; see `match`.

        Example:
            >>> from hamtarget import FlatIndex
            >>> index = FlatIndex(64)
            >>> index.add([7, 8], np.array([[0] * 8, [255] * 8], dtype=np.uint8))
            >>> both, none = np.array([[0] * 8, [255] * 8], np.uint8), np.array([[15] * 8], np.uint8)
            >>> answer = index.match_batch([both, none], radius=2)
            >>> [match.id for match in answer.matches(0)], answer.matches(1)
            ([7, 8], ())

        Args:
            queries: a list of what `match` takes, or an `Asked` with `offsets`.
            radius: as in `search`.
            codes: a list of arrays of codes instead of `queries`.
            at_least: as in `match`.
            limit: most items of each query.
            filter: as in `search`.
            work: as in `search_batch`.

        Returns:
            An answer whose `matches(q)` are the items that match query q.

        Raises:
            As `match`.
        """
        wanted = Query(self._within(radius, None), limit, filter=filter, at_least=at_least)
        if isinstance(queries, Asked):
            if queries.offsets is None:
                raise InputError("offsets are missing; pass Asked(codes, offsets), or a list of arrays of codes")
            return self.answer(queries, wanted, check_work(work))
        given = self._given(queries, codes, "codes")
        try:
            parts = list(given)
        except TypeError as error:
            raise ShapeError(f"queries are {given!r}; expected a list of queries of several codes each") from error
        if codes is None:
            asked = [self._many_asked(part, None, wanted, "match") for part in parts]
        else:
            asked = [self._many_asked(None, part, wanted, "match") for part in parts]
        rows = [np.atleast_2d(np.asarray(each.codes)) for each in asked]
        all_codes = np.concatenate(rows) if rows else np.empty((0, self.n_bits // 8), dtype=np.uint8)
        offsets = np.concatenate(([0], np.cumsum([len(each) for each in rows], dtype=np.int64)))
        return self.answer(_divided(Asked(all_codes), offsets), wanted, check_work(work))

    def _within(self, radius: int | None, budget: int | None) -> int:
        """Return the radius of a search that may name one."""
        within = self._own_radius(budget) if radius is None else check_radius(radius, self.n_bits)
        if within is None:
            raise InputError(f"radius is missing; a {type(self).__name__} has none of its own: pass one")
        return within

    def _own_radius(self, budget: int | None) -> int | None:
        return self.radius

    def _one_asked(self, query: Any, code: ArrayLike | None, wanted: Query, instead: str) -> Asked:
        """Return what one query is asked with, as a batch of one; `instead` is the call for several."""
        asked = query if type(query) is Asked else self._asked(query, code, wanted, many=False)
        check_question(asked, wanted)
        codes, _, logits, embeddings = asked
        if codes is not None:
            codes = _one_row(codes, "code", f"one code, ({self.n_bits // 8},)", instead)
        if logits is not None:
            logits = _one_row(logits, "logits", f"those of one query, ({self.n_bits},)", instead)
        if embeddings is not None:
            embeddings = _one_row(embeddings, "embedding", "that of one query, (n_dims,)", instead)
        return Asked(codes, None, logits, embeddings)

    def _many_asked(self, queries: Any, codes: ArrayLike | None, wanted: Query, instead: str) -> Asked:
        """Return what a batch of queries is asked with; `instead` is the call for one."""
        if not isinstance(queries, Asked):
            queries = self._asked(queries, codes, wanted, many=True)
        check_question(queries, wanted)
        return Asked(
            _rows(queries.codes, "codes", f"(queries, {self.n_bits // 8}): for one code", instead),
            queries.offsets,
            _rows(queries.logits, "logits", f"(queries, {self.n_bits}): for one query", instead),
            queries.embeddings,
        )

    @staticmethod
    def _given(query: Any, code: Any, name: str) -> Any:
        """Return the one of both that is given.

        Raises:
            InputError: both are, or neither.
        """
        if (query is None) == (code is None):
            both = "both given" if code is not None else "both missing"
            raise InputError(f"a query and {name} are {both}; give one of them")
        return code if query is None else query


def _divided(asked: Asked, offsets: ArrayLike) -> Asked:
    """Return codes that are divided among queries.

    Raises:
        InputError: a query has no codes, or too many.
    """
    counts = np.diff(np.asarray(offsets))
    if len(counts) and not bool(((counts >= 1) & (counts <= MAX_CODES)).all()):
        wrong = int(counts[(counts < 1) | (counts > MAX_CODES)][0])
        raise InputError(f"the query has {wrong:,} codes; expected 1 to {MAX_CODES}")
    return Asked(asked.codes, offsets, asked.logits, asked.embeddings)


def _one_row(values: ArrayLike, name: str, expected: str, instead: str) -> Any:
    """Return one row as a batch of one."""
    array = as_array(values, name=name)
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; expected {expected}: for several, call {instead}")
    return array[None]


def _rows(values: ArrayLike | None, name: str, expected: str, instead: str) -> Any:
    if values is None:
        return None
    array = as_array(values, name=name)
    if array.ndim != 2:
        raise ShapeError(f"{name} have shape {array.shape}; expected {expected}, call {instead}")
    return array


def __dir__() -> list[str]:
    return __all__
